"""Commands in the sandbox end when they must and reach no further than they may."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from afterwit.sandbox.process import Limits, confined, run, weakness


def test_a_command_runs_in_the_workspace_and_its_output_comes_back(tmp_path: Path) -> None:
    ended = run(["python3", "-c", "open('out.txt', 'w').write('x'); print('said')"], tmp_path)
    assert (ended.status, ended.output) == (0, "said\n")
    assert (tmp_path / "out.txt").read_text() == "x"


def test_no_shell_reads_the_arguments(tmp_path: Path) -> None:
    assert run(["echo", "$HOME;ls"], tmp_path).output == "$HOME;ls\n"


@pytest.mark.parametrize("argv", [["no-such-command"], [], ["echo", "nul\0"]])
def test_a_command_that_cannot_start_has_status_127(tmp_path: Path, argv: list[str]) -> None:
    if confined() and argv[:1] == ["no-such-command"]:
        assert run(argv, tmp_path).status != 0
    else:
        assert run(argv, tmp_path).status == 127


STARTS_A_CHILD = """
import subprocess, sys
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
print(subprocess.Popen(sleeper, start_new_session={}).pid, flush=True)
"""
COMMAND_LINE = b"time.sleep(600)"


def running(process: int) -> bool:
    """Whether it is still there and does something: one that has ended may wait to be reaped."""
    try:
        return COMMAND_LINE in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def ends(process: int, within_s: float = 60.0) -> bool:
    """Whether it is gone soon: the kernel takes its time with a process that was killed."""
    deadline = time.monotonic() + within_s
    while running(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not running(process)


unseen = pytest.mark.skipif(
    confined() or not Path("/proc/self").exists(), reason="its processes are not seen"
)


@unseen
@pytest.mark.parametrize("session_of_its_own", [False, True])
def test_a_command_out_of_time_is_killed_with_its_children(tmp_path: Path, session_of_its_own: bool) -> None:
    code = STARTS_A_CHILD.format(session_of_its_own) + "import time; time.sleep(600)"
    ended = run(["python3", "-c", code], tmp_path, Limits(seconds=2.0))
    assert ended.timed_out
    assert not ended.output or ends(int(ended.output))


@unseen
@pytest.mark.parametrize("session_of_its_own", [False, True])
def test_a_child_left_behind_does_not_outlive_the_command(tmp_path: Path, session_of_its_own: bool) -> None:
    ended = run(["python3", "-c", STARTS_A_CHILD.format(session_of_its_own)], tmp_path, Limits(seconds=60.0))
    assert ended.status == 0
    assert ends(int(ended.output))


def test_a_command_leaves_nothing_in_the_folder_for_temporary_files(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "temporary").mkdir()
    code = "from pathlib import Path; from afterwit.sandbox import run; run(['python', '-V'], Path('work'))"
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_machine_without_bubblewrap_is_told_what_commands_can_do() -> None:
    said = weakness()
    assert (said is None) == confined()
    assert said is None or "read your files and open sockets" in said


def test_memory_and_file_size_are_limited(tmp_path: Path) -> None:
    greedy = run(["python3", "-c", "x = bytearray(2 << 30)"], tmp_path)
    assert greedy.status != 0
    assert "MemoryError" in greedy.output
    large = run(["python3", "-c", "open('big', 'wb').write(bytes(64 << 20))"], tmp_path)
    assert large.status != 0
    assert (tmp_path / "big").stat().st_size <= 16 << 20


def test_the_limits_are_soft_and_hard_however_large_this_process_is(tmp_path: Path) -> None:
    names = ("CPU", "AS", "FSIZE", "CORE")
    code = f"import resource as r; print([r.getrlimit(getattr(r, 'RLIMIT_' + n)) for n in {names}])"
    limits = Limits(cpu_seconds=3, memory_bytes=300 << 20, file_bytes=1 << 20)
    expected = [(3, 3), (300 << 20, 300 << 20), (1 << 20, 1 << 20), (0, 0)]
    assert run(["python3", "-c", code], tmp_path, limits).output == f"{expected}\n"


def test_the_environment_holds_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERWIT_SECRET", "hidden")
    assert "hidden" not in run(["env"], tmp_path).output


def test_output_is_cut_at_its_limit(tmp_path: Path) -> None:
    ended = run(["python3", "-c", "print('x' * 100000)"], tmp_path, Limits(output_chars=100))
    assert ended.output == "x" * 100


@pytest.mark.skipif(not confined(), reason="bubblewrap does not work on this machine")
def test_bubblewrap_hides_the_rest_of_the_system(tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside.txt"
    outside.write_text("secret")
    assert "secret" not in run(["cat", str(outside)], tmp_path).output
    assert str(os.getpid()) not in run(["ls", "/proc"], tmp_path).output.split()
