"""The files of a box, as process 1 reads and writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterwit_atropos.sandbox.inside.files import SEEN_AS, Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "work").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return Files(str(tmp_path / "work"))


def test_a_text_is_read_as_it_was_written_by_either_name(files: Files) -> None:
    files.write(f"{SEEN_AS}/a/b.txt", "ä\n")
    assert files.read("a/b.txt", 100) == "ä\n"
    files.write("a/b.txt", "half \ud800")
    assert files.read("a/b.txt", 100) == "half ?"


@pytest.mark.parametrize(
    "path", ["../secret.txt", "/etc/passwd", f"{SEEN_AS}/../secret.txt", "a/../../secret.txt"]
)
def test_a_path_that_ends_outside_is_refused(files: Files, path: str) -> None:
    with pytest.raises(ValueError, match="outside the workspace"):
        files.read(path, 100)
    with pytest.raises(ValueError, match="outside the workspace"):
        files.write(path, "x")


def test_links_are_followed_within_only(files: Files, tmp_path: Path) -> None:
    (tmp_path / "work" / "out").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ValueError, match="outside the workspace"):
        files.read("out", 100)
    files.write("one", "1")
    (tmp_path / "work" / "within").symlink_to("one")
    assert files.read("within", 100) == "1"


def test_what_is_no_file_absent_or_too_large_is_refused(files: Files, tmp_path: Path) -> None:
    (tmp_path / "work" / "folder").mkdir()
    with pytest.raises(OSError, match="not a file: folder"):
        files.read("folder", 100)
    with pytest.raises(OSError, match="not a file: folder"):
        files.write("folder", "x")
    with pytest.raises(OSError, match="no such file: absent"):
        files.read("absent", 100)
    files.write("large", "x" * 101)
    with pytest.raises(OSError, match="large has more than 100 bytes"):
        files.read("large", 100)
    with pytest.raises(ValueError, match="NUL"):
        files.read("a\0b", 100)
