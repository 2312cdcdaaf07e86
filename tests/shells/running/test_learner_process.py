"""The learner's process: started again after every death, and never longer alive than its parent."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from afterwit.config import load
from afterwit.errors import StoreError
from afterwit.running import learner_process
from tests.engines.vllm.recorded import listening
from tests.engines.vllm.scoring import Scoring
from tests.fakes.models import tiny_qwen3
from tests.shells.running.several_learners import LEARNER, fill, trained


async def test_a_store_that_takes_no_status_does_not_end_the_restarts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []
    twice = asyncio.Event()

    async def report(ok: bool, words: str) -> None:
        said.append(words)
        if len(said) == 2:
            twice.set()
        raise StoreError("the disk is full")

    settings = load(home=tmp_path, environment={})
    kept = asyncio.create_task(
        learner_process.keep_alive(settings, tmp_path, pause_s=0.01, stop_s=1.0, report=report)
    )
    killer = asyncio.create_task(kill_learners())
    async with asyncio.timeout(50):
        await twice.wait()
    for task in (kept, killer):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert all("the learner was killed" in words for words in said)
    assert "its status cannot be stored: the disk is full" in caplog.text


async def test_a_learner_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    tries = asyncio.Queue[str]()

    async def report(ok: bool, words: str) -> None:
        tries.put_nowait(words)

    settings = load(home=tmp_path, environment={})
    few = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept = asyncio.create_task(
        learner_process.keep_alive(settings, tmp_path, pause_s=0.01, stop_s=1.0, report=report)
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, few[1]))
    try:
        said = [await tries.get(), await tries.get()]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, few)
    assert all("the learner cannot be started: [Errno 24] Too many open files" in words for words in said)
    while not multiprocessing.active_children():  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0.02)
    kept.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await kept


async def kill_learners() -> None:
    """Kill -9 whatever learner is there, again and again."""
    for _ in range(1000):
        for learner in multiprocessing.active_children():
            learner.kill()
        await asyncio.sleep(0.02)


PARENT = """
import os, signal, sys
from pathlib import Path
from afterwit.running import learner_process
from afterwit.config import load

if __name__ == "__main__":
    home = Path(sys.argv[1])
    settings = load(home=home, below={"model": sys.argv[2]}, environment={})
    print(learner_process._start(settings, home).pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_learner_whose_parent_is_killed_while_it_imports_ends_too(tmp_path: Path) -> None:
    model = tiny_qwen3(tmp_path / "model")
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.run(
        [sys.executable, script, tmp_path / "home", model], stdout=subprocess.PIPE, text=True, check=False
    )
    assert parent.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 300
    while is_running(int(parent.stdout)):
        assert time.monotonic() < deadline, "the learner outlives its parent"
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    """Whether there is such a process; one that ended and was not waited for does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def test_a_learner_without_a_heartbeat_is_reported_once_and_again_when_it_has_one() -> None:
    said = asyncio.Queue[tuple[bool, str]]()

    async def report(ok: bool, words: str) -> None:
        said.put_nowait((ok, words))

    reads, writes = multiprocessing.Pipe(duplex=False)
    with reads, writes:
        process = multiprocessing.current_process()
        watching = asyncio.create_task(learner_process._watch(reads, process, 0.05, report))
        ok, words = await said.get()
        assert not ok
        assert "reported nothing for 0.05 s (learner.patience_s)" in words
        assert f"kill -9 {process.pid}" in words
        await asyncio.sleep(0.2)
        assert said.empty()
        writes.send_bytes(b".")
        assert await said.get() == (True, "working")
        watching.cancel()


@pytest.mark.slow  # a learner's process
async def test_a_learner_that_hangs_is_reported_and_once_it_goes_on_a_server_teaches_it(
    tmp_path: Path,
) -> None:
    said = asyncio.Queue[tuple[bool, str]]()

    async def report(ok: bool, words: str) -> None:
        said.put_nowait((ok, words))

    home, base = tmp_path / "home", tiny_qwen3(tmp_path / "base")
    server = Scoring(tiny_qwen3(tmp_path / "teacher", seed=5))
    async with listening(server) as url, asyncio.timeout(300):
        learner = LEARNER | {"teacher": "server", "teacher_url": url, "patience_s": 3.0}
        settings = load(home=home, below={"model": str(base), "learner": learner}, environment={})
        fill(settings, base, home, *range(4))
        kept = asyncio.create_task(
            learner_process.keep_alive(settings, home, pause_s=0.01, stop_s=1.0, report=report)
        )
        while not (learners := multiprocessing.active_children()):  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.05)
        (process,) = learners
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        while "reported nothing for 3 s" not in (words := (await said.get())[1]):
            pass
        assert f"kill -9 {process.pid}" in words
        os.kill(process.pid, signal.SIGCONT)
        while await said.get() != (True, "working"):
            pass
        while not (learned := trained(home, base)):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
        assert process.is_alive()
        kept.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await kept
    assert not process.is_alive()
    assert learned == [f"turn{number:04d}" for number in range(4)]
    assert server.scored >= 8, "every hint of every turn"
