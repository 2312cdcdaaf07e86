"""Ctrl-C: no traceback, and no wait for what loads."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from afterwit.config import load
from afterwit.running import learner_process
from afterwit.running.serve import Runtime


def ended(code: str) -> tuple[int, str]:
    """The exit code and the words of a process that runs the code."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_while_the_command_itself_is_imported_it_ends_the_process_in_silence() -> None:
    code = """
import signal, sys
from afterwit.__main__ import main
class Interrupting:
    def find_spec(self, name, *_):
        signal.raise_signal(signal.SIGINT) if name == "afterwit.cli.app" else None
sys.meta_path.insert(0, Interrupting())
main()
"""
    assert ended(code) == (-signal.SIGINT, "")


def test_while_the_commands_are_made_it_ends_the_process_in_silence() -> None:
    code = """
import signal
from typer import utils
from afterwit.__main__ import main
def interrupted(*_):
    signal.raise_signal(signal.SIGINT)
utils.get_type_hints = interrupted
main()
"""
    assert ended(code) == (-signal.SIGINT, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_anything_is_served_it_ends_the_process_and_its_servers_with_a_sentence(number: int) -> None:
    code = f"""
import signal
from afterwit.printing.terminal import end_at_signals
class Server:
    def kill(self): print("killed", flush=True)
end_at_signals("stopped: nothing was served yet", [Server()])
signal.raise_signal({number})
"""
    code_, words = ended(code)
    assert code_ == -number
    assert words.split("\n", 1)[0] == "killed"
    assert words.endswith("stopped: nothing was served yet\n")


def test_the_learner_never_reads_its_parents(tmp_path: Path) -> None:
    process = learner_process._start(load(home=tmp_path), tmp_path)
    try:
        blocked = Path(f"/proc/{process.pid}/status").read_text().partition("SigBlk:")[2].split()[0]
        assert int(blocked, 16) >> (signal.SIGINT - 1) & 1
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        process.kill()
        process.join()
    assert not multiprocessing.active_children()


async def test_its_end_says_what_it_waits_for_and_how_long_at_most(model: Path, tmp_path: Path) -> None:
    below = {"model": str(model), "serve": {"port": 0, "drain_s": 7.0}}
    settings = load(home=tmp_path, below=below, environment={})
    assert Runtime(settings, tmp_path).waits_for() == ["the learner may take 20 s to end its update"]
    async with Runtime(settings, tmp_path, ("gateway",)) as runtime:
        assert runtime.in_flight is not None
        assert runtime.waits_for() == []
        with runtime.in_flight.admit():
            assert runtime.waits_for() == ["1 running answer may take 7 s more"]
