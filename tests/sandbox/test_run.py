"""A single command in a folder of the machine ends when it must and reaches no further than it may."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from afterwit.sandbox.box import run, weakness
from afterwit.sandbox.isolation import BoxLimits

confined = pytest.mark.skipif(weakness() is not None, reason="bubblewrap does not work on this machine")


def test_a_command_runs_in_the_workspace_and_its_output_comes_back(tmp_path: Path) -> None:
    ended = run(["python3", "-c", "open('out.txt', 'w').write('x'); print('said')"], tmp_path)
    assert (ended.status, ended.output) == (0, "said\n")
    assert (tmp_path / "out.txt").read_text() == "x"


def test_no_shell_reads_the_arguments(tmp_path: Path) -> None:
    assert run(["echo", "$HOME;ls"], tmp_path).output == "$HOME;ls\n"


@pytest.mark.parametrize("argv", [["no-such-command"], [], ["echo", "nul\0"]])
def test_a_command_that_cannot_start_has_status_127(tmp_path: Path, argv: list[str]) -> None:
    assert run(argv, tmp_path).status == 127


def test_a_command_out_of_time_is_ended_and_memory_and_file_size_are_limited(tmp_path: Path) -> None:
    assert run(["sleep", "600"], tmp_path, BoxLimits(seconds=0.5)).ended_for == "time"
    greedy = run(["python3", "-c", "x = bytearray(2 << 30)"], tmp_path)
    assert greedy.status != 0
    assert "MemoryError" in greedy.output
    large = run(["python3", "-c", "open('big', 'wb').write(bytes(64 << 20))"], tmp_path)
    assert large.status != 0
    assert (tmp_path / "big").stat().st_size <= 16 << 20


def test_a_command_leaves_nothing_in_the_folder_for_temporary_files(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "temporary").mkdir()
    code = (
        "from pathlib import Path; from afterwit.sandbox.box import run; run(['python', '-V'], Path('work'))"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_machine_without_bubblewrap_is_told_what_commands_can_do() -> None:
    said = weakness()
    assert said is None or "read your files and open sockets" in said


def test_the_environment_holds_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERWIT_SECRET", "hidden")
    assert "hidden" not in run(["env"], tmp_path).output


@confined
def test_bubblewrap_hides_the_rest_of_the_system(tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside.txt"
    outside.write_text("secret")
    assert "secret" not in run(["cat", str(outside)], tmp_path).output
    assert str(os.getpid()) not in run(["ls", "/proc"], tmp_path).output.split()
