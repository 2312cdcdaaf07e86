"""A box: one working folder and isolated commands in it; and single commands in a folder of the machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from afterwit.errors import BoxEnded
from afterwit.sandbox.inside.files import MOST_READ
from afterwit.sandbox.isolation import PROGRAMS, UNSAFE, BoxLimits, Isolation, bubblewrap, why_not

log = logging.getLogger(__name__)
START_S = 60.0
END_S = 10.0
GRACE_S = 60.0
"""Added to a command's time, for a busy machine: process 1 ends commands itself, this is for its own end."""
LONGEST_ANSWER = 16 << 20

COMMAND = BoxLimits(seconds=5.0, cpu_seconds=5.0, output_bytes=4000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended."""

    status: int | None
    """Exit status; negative: killed by that signal."""
    output: str
    """Its output on both streams, cut."""
    cut_bytes: int = 0
    """How much more it printed."""
    ended_for: str | None = None
    """The limit that it exceeded: time, cpu, memory, processes, output, files."""


class Box:
    """Requests to process 1 of a box, one at a time. Any may raise BoxEnded; the box is then of no use."""

    def __init__(
        self, process: asyncio.subprocess.Process, isolation: Isolation, limits: Mapping[str, Any]
    ) -> None:
        """`limits` are those of `Isolation.limits`."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._input, self._output = process, process.stdin, process.stdout
        self._isolation, self._limits = isolation, limits
        self._turn = asyncio.Lock()
        self._level = logging.DEBUG if isolation.isolated else logging.WARNING

    async def run(self, argv: Sequence[str]) -> Ran:
        """Run a command until it ends or exceeds a limit. All that it started ends with it."""
        began, limits = time.monotonic(), self._limits
        answer = await self._ask("run", seconds=limits["seconds"], argv=list(argv), limits=limits)
        ran = Ran(**_checked(answer))
        seconds, end = time.monotonic() - began, ran.ended_for or f"status {ran.status}"
        log.log(self._level, "command in a box (%s): %s after %.2f s", self._isolation.name, end, seconds)
        return ran

    async def read(self, path: str) -> str:
        """A file's text. OSError if there is no such file, or if it has more than `MOST_READ` bytes."""
        return str(_checked(await self._ask("read", path=path))["text"])

    async def write(self, path: str, text: str) -> None:
        """Write a text to a file; missing folders are made. OSError as the file system raises it."""
        if len(text.encode("utf-8", "replace")) > MOST_READ:
            raise OSError(f"text of {len(text)} characters, more than {MOST_READ} bytes")
        _checked(await self._ask("write", path=path, text=text))

    async def start(self, argv: Sequence[str]) -> None:
        """Start a program that answers each line with a line: use `ask` until `stop`."""
        log.log(self._level, "program in a box (%s) is started", self._isolation.name)
        _checked(await self._ask("start", argv=list(argv), limits=self._limits))

    async def ask(self, line: str) -> str | None:
        """The program's answer to a line; None if it ended, or exceeded a limit, without one."""
        answer = _checked(await self._ask("ask", seconds=self._limits["seconds"], line=line))
        found: str | None = answer.get("line")
        return found

    async def stop(self) -> None:
        """End the program that was started, with all that it started."""
        await self._ask("stop")

    async def close(self) -> None:
        """End process 1, and with it everything in the box, even if this is cancelled meanwhile."""
        self._input.close()
        try:
            if not self._isolation.isolated:  # it ends what its commands started; the kernel would not
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), END_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._gone()

    async def _gone(self) -> None:
        """Wait for the end of process 1, which was killed, even if cancelled: a loop that ended now would
        leave the pipes to the garbage collector."""
        try:
            await self._process.wait()
        except asyncio.CancelledError:
            await self._gone()
            raise
        self._process._transport.close()  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    async def _ask(self, do: str, *, seconds: float = 0.0, **request: Any) -> Mapping[str, Any]:
        async with self._turn:
            try:
                self._input.write(json.dumps({"do": do, **request}).encode() + b"\n")
                await self._input.drain()
                return await self._answer(seconds + GRACE_S)
            except (OSError, asyncio.CancelledError):
                await self.close()  # its late answer would be taken for that of the next request
                raise

    async def _answer(self, seconds: float) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(seconds):
                answer: Mapping[str, Any] = json.loads(await self._output.readline())
        except (TimeoutError, ValueError) as error:
            await self.close()
            assert self._process.stderr is not None
            lines = (await self._process.stderr.read()).decode("utf-8", "replace").strip().splitlines()
            last = lines[-1] if lines else error
            raise BoxEnded(f"the box does not answer ({last})") from error
        return answer


@asynccontextmanager
async def open_box(
    isolation: Isolation, limits: BoxLimits | None = None, work: Path | None = None
) -> AsyncIterator[Box]:
    """A box with an empty working folder, closed at the end with everything in it; or with the folder `work`
    of the machine."""
    limits = limits or BoxLimits()
    with tempfile.TemporaryDirectory(prefix="afterwit-box-") as root:
        process = await asyncio.create_subprocess_exec(
            *isolation.command(limits, root, work),
            cwd=PROGRAMS,
            env={**isolation.environment, **({} if isolation.isolated else {"HOME": str(work or root)})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=LONGEST_ANSWER,
        )
        box = Box(process, isolation, isolation.limits(limits, work))
        try:
            await box._answer(START_S)  # process 1 is ready
            if isolation.isolated:  # it holds what it needs of the folder, so that a kill leaves nothing
                shutil.rmtree(root)
            yield box
        finally:
            await box.close()


def run(argv: Sequence[str], work: Path, limits: BoxLimits = COMMAND) -> Ran:
    """Run one command in a folder of the machine, with all the isolation that works here.

    A command that cannot start has status 127. `weakness()` describes missing isolation. Raises BoxEnded.
    """
    folder = work.resolve()

    async def once() -> Ran:
        async with open_box(_isolation(), limits, folder) as box:
            return await box.run(argv)

    with ThreadPoolExecutor(1) as thread:  # an event loop may run in this one
        return thread.submit(asyncio.run, once()).result()


@cache
def _isolation() -> Isolation:
    return bubblewrap() if why_not(shutil.which("bwrap"), Path(tempfile.gettempdir())) is None else UNSAFE


def weakness() -> str | None:
    """A sentence on what commands of `run` can do beyond their limits here; None if they are isolated."""
    if _isolation().isolated:
        return None
    root = ", and start any number of processes, because this is root" if os.getuid() == 0 else ""
    return (
        "bubblewrap does not work here: the agent's commands would have limits of time and memory, "
        f"but could read your files and open sockets{root}"
    )


def _checked(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    if "error" in answer:
        raise OSError(answer["error"])
    return answer
