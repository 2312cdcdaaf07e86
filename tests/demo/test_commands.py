"""The tasks' commands, done without a process, do the same as processes; no other command is done."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from afterwit.demo.tools import tasks
from afterwit.demo.tools.world import Ran, ToolsWorld, Workspace
from afterwit.demo.world import Task
from afterwit.turn import ToolCall


def _place(folder: Path, task: Task) -> Workspace:
    folder.mkdir()
    return Workspace(folder, task.files)


def _files(folder: Workspace) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.root.iterdir()}


def _commands(task: Task) -> list[Sequence[str]]:
    script = task.subject.get("script")
    runs = [("python3", script), *task.checks] if script else []
    return [
        *task.checks,
        *runs,
        ("test", "-e", "no-such.txt"),
        ("grep", "-xF", "", next(iter(task.files), "a.txt")),
    ]


def _process(argv: Sequence[str], folder: Path) -> Ran:
    ended = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    return Ran(ended.returncode, ended.stdout)


@pytest.mark.parametrize("kind", sorted(tasks.KINDS))
def test_a_tasks_commands_print_and_leave_what_processes_do(kind: str, tmp_path: Path) -> None:
    task = tasks.of_kind(kind, "fresh", Random(0))
    here, there = (_place(tmp_path / name, task) for name in ("here", "there"))
    for argv in _commands(task):
        if argv[0] != "grep" or here.exists(argv[-1]):
            assert here.run(argv) == _process(argv, there.root), argv
    assert _files(here) == _files(there)


@pytest.mark.parametrize(
    "argv",
    [
        ("touch", "made"),
        ("python3", "odd.py"),
        ("python3", "missing.py"),
        ("python3", "/work/odd.py"),
        ("grep", "-xF", "x", "missing.txt"),
        ("ls",),
        (),
    ],
)
def test_every_other_command_is_not_found(argv: tuple[str, ...], tmp_path: Path) -> None:
    files = Workspace(tmp_path, {"odd.py": "print(1 + 1)\n"})
    assert files.run(argv).status == 127
    assert [path.name for path in tmp_path.iterdir()] == ["odd.py"]


@pytest.mark.parametrize("path", ["x" * 300, "\ud800", "a\0b"])
def test_a_path_that_no_file_can_have_is_answered_in_words(path: str) -> None:
    with ToolsWorld().start(tasks.draw("fresh", Random(0))) as state:
        call = ToolCall(id="", name="write", arguments=json.dumps({"path": path, "text": ""}))
        assert state.act(call).startswith("failed: ")
