"""A box: one working folder and the commands in it, kept in by `Walls`, gone when it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from afterwit.apps.sandbox.box.isolation import PROGRAMS, Walls
from afterwit.apps.sandbox.box.limits import BoxLimits
from afterwit.core.errors import BoxEnded

LOG = logging.getLogger(__name__)
START_S = 60.0
END_S = 10.0
GRACE_S = 60.0
"""Beyond a command's time, for a busy machine: process 1 ends commands itself, this is for its own end."""
LONGEST_ANSWER = 16 << 20
MOST_READ = 1 << 20
"""Bytes of a file that is read or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended."""

    status: int | None
    """Exit status; negative: killed by that signal."""
    output: str
    """What it printed, errors among it, cut."""
    cut_bytes: int = 0
    """How much more it printed."""
    ended_for: str | None = None
    """The limit that it used up: time, cpu, memory, processes, output, files."""


class Box:
    """Requests to process 1 of a box, one at a time. Any may raise BoxEnded; the box is then of no use."""

    def __init__(self, process: asyncio.subprocess.Process, walls: Walls, limits: BoxLimits) -> None:
        self._process, self._walls, self._limits = process, walls, limits
        self._turn = asyncio.Lock()
        self._level = logging.DEBUG if walls.isolated else logging.WARNING

    async def run(self, argv: Sequence[str]) -> Ran:
        """Run a command to its end, or to the end of its limits. All that it started ends with it.

        OSError if it cannot be started at all.
        """
        began = time.monotonic()
        said = await self._ask("run", seconds=self._limits.seconds, argv=list(argv), limits=self._for_init())
        ran = Ran(**_done(said))
        seconds, cut = time.monotonic() - began, ran.ended_for or f"status {ran.status}"
        LOG.log(self._level, "command in a box (%s): %s after %.2f s", self._walls.name, cut, seconds)
        return ran

    async def read(self, path: str) -> str:
        """A file's text. OSError if there is no such file, or if it has more than `MOST_READ` bytes."""
        text: str = _done(await self._ask("read", path=path, most=MOST_READ))["text"]
        return text

    async def write(self, path: str, text: str) -> None:
        """Put a text in a file; folders on the way are made. OSError as the file system does."""
        if len(text.encode("utf-8", "replace")) > MOST_READ:
            raise OSError(f"text of {len(text)} characters, more than {MOST_READ} bytes")
        _done(await self._ask("write", path=path, text=text))

    async def start(self, argv: Sequence[str]) -> None:
        """Start a program that answers lines with lines: it is talked to by `ask` until `stop`."""
        LOG.log(self._level, "program in a box (%s) is started", self._walls.name)
        _done(await self._ask("start", argv=list(argv), limits=self._for_init()))

    async def ask(self, line: str) -> str | None:
        """The program's answer to a line; None if it ended, or was ended by a limit, without one."""
        said = _done(await self._ask("ask", seconds=self._limits.seconds, line=line))
        answer: str | None = said.get("line")
        return answer

    async def stop(self) -> None:
        """End the program that was started, with all that it started."""
        await self._ask("stop")

    async def close(self) -> None:
        """End process 1, and with it everything in the box; also if this is cancelled meanwhile."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            if not self._walls.isolated:  # it ends what its commands started, the kernel would not
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), END_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._gone()

    async def _gone(self) -> None:
        """Wait for the end of process 1, which was killed. A cancellation waits too.

        A loop that ended now would leave the pipes to the collector.
        """
        try:
            await self._process.wait()
        except asyncio.CancelledError:
            await self._gone()
            raise
        self._process._transport.close()  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    async def ready(self) -> None:
        """Wait for process 1. BoxEnded if it does not come up."""
        await self._answer(START_S)

    def _for_init(self) -> Mapping[str, Any]:
        return self._limits.for_init(
            isolated=self._walls.isolated, counts_processes=self._walls.counts_processes
        )

    async def _ask(self, do: str, *, seconds: float = 0.0, **request: Any) -> Mapping[str, Any]:
        async with self._turn:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
                await self._process.stdin.drain()
                return await self._answer(seconds + GRACE_S)
            except (OSError, asyncio.CancelledError):
                await self.close()  # an answer that nobody waited for would be taken for the next one's
                raise

    async def _answer(self, seconds: float) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                line = await self._process.stdout.readline()
            answer: Mapping[str, Any] = json.loads(line)
        except (TimeoutError, ValueError) as error:
            await self.close()
            raise BoxEnded(f"the box does not answer ({await self._last_words() or error})") from error
        return answer

    async def _last_words(self) -> str:
        assert self._process.stderr is not None
        lines = (await self._process.stderr.read()).decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""


@asynccontextmanager
async def open_box(walls: Walls, limits: BoxLimits | None = None) -> AsyncIterator[Box]:
    """A box with an empty working folder, closed at the end with everything in it."""
    limits = limits or BoxLimits()
    with tempfile.TemporaryDirectory(prefix="afterwit-box-") as root:
        process = await asyncio.create_subprocess_exec(
            *walls.command(limits, root),
            cwd=PROGRAMS,
            env={**walls.environment, **({} if walls.isolated else {"HOME": root})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=LONGEST_ANSWER,
        )
        box = Box(process, walls, limits)
        try:
            await box.ready()
            if walls.isolated:  # it holds what it needs of the folder, so that a kill leaves nothing behind
                shutil.rmtree(root)
            yield box
        finally:
            await box.close()


def _done(said: Mapping[str, Any]) -> Mapping[str, Any]:
    if "error" in said:
        raise OSError(said["error"])
    return said
