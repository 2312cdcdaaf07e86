"""Commands rehearsed without a process do the same as the sandbox's processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from afterwit.demo.tools import rehearse, tasks
from afterwit.demo.world import Task
from afterwit.sandbox.box import Ran, run


def _place(folder: Path, task: Task) -> Path:
    folder.mkdir()
    for name, text in task.files.items():
        (folder / name).write_text(text)
    return folder


def _files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def _commands(task: Task) -> list[Sequence[str]]:
    script = task.subject.get("script")
    runs = [("python3", script), ("python", script), *task.checks] if script else []
    return [*task.checks, *runs, ("test", "-e", "no-such.txt"), ("grep", "-xF", "", "a.txt")]


@pytest.mark.parametrize("kind", sorted(tasks.KINDS))
def test_a_tasks_commands_print_and_leave_what_they_do_in_the_sandbox(kind: str, tmp_path: Path) -> None:
    task = tasks.of_kind(kind, "fresh", Random(0))
    here, there = (_place(tmp_path / name, task) for name in ("here", "there"))
    for argv in _commands(task):
        assert rehearse.run(argv, here) == run(argv, there), argv
    assert _files(here) == _files(there)


def test_without_isolation_a_models_command_starts_no_process(tmp_path: Path) -> None:
    assert rehearse.confined(["touch", "made"], tmp_path, lambda: "no bubblewrap").status == 127
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "argv",
    [
        ("python3", "odd.py"),
        ("python3", "missing.py"),
        ("python3", "/work/odd.py"),
        ("grep", "-xF", "x", "missing.txt"),
        ("ls",),
    ],
)
def test_every_other_command_is_the_sandboxs(argv: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("print(1 + 1)\n")
    said = rehearse.run(argv, tmp_path)
    assert said == run(argv, tmp_path) != Ran(status=0, output="")
