"""Files stay below the workspace's folder, whatever path an agent writes."""

from pathlib import Path

import pytest

from afterwit.demo.tools.world import OutsideWorkspace, Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "work"
    root.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return Workspace(root)


@pytest.mark.parametrize(
    "path", ["../secret.txt", "/etc/passwd", "a/../../secret.txt", "/work/../secret.txt", "/working/x"]
)
def test_a_path_that_leaves_the_workspace_is_refused(workspace: Workspace, path: str) -> None:
    for act in (
        workspace.read,
        workspace.delete,
        lambda p: workspace.write(p, "x"),
        lambda p: workspace.copy("a", p),
    ):
        workspace.write("a", "x")
        with pytest.raises(OutsideWorkspace):
            act(path)


def test_a_link_out_of_the_workspace_is_refused_for_reading_writing_and_deleting(
    workspace: Workspace,
) -> None:
    (workspace.root / "link").symlink_to(workspace.root.parent / "secret.txt")
    (workspace.root / "folder").symlink_to(workspace.root.parent)
    for path in ("link", "folder/secret.txt"):
        with pytest.raises(OutsideWorkspace):
            workspace.read(path)
        with pytest.raises(OutsideWorkspace):
            workspace.write(path, "overwritten")
        with pytest.raises(OutsideWorkspace):
            workspace.delete(path)
    assert (workspace.root.parent / "secret.txt").read_text() == "secret"


def test_the_absolute_name_of_the_workspace_means_its_folder(workspace: Workspace) -> None:
    workspace.write("/work/notes.txt", "here")
    assert workspace.read("notes.txt") == "here"


def test_an_edit_needs_its_text_exactly_once(workspace: Workspace) -> None:
    workspace.write("a.txt", "red red")
    with pytest.raises(ValueError, match="stands 2 times"):
        workspace.edit("a.txt", "red", "blue")
    workspace.write("a.txt", "red")
    workspace.edit("a.txt", "red", "blue")
    assert workspace.read("a.txt") == "blue"


def test_only_files_are_read_copied_and_deleted(workspace: Workspace) -> None:
    (workspace.root / "folder").mkdir()
    with pytest.raises(OSError, match="not a file"):
        workspace.delete("folder")
    with pytest.raises(FileNotFoundError, match=r"no such file: absent\.txt"):
        workspace.copy("absent.txt", "b.txt")
