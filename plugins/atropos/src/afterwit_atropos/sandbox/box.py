"""A box: one working folder and isolated commands in it."""

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

from afterwit.api.turns import AfterwitError
from afterwit_atropos.sandbox.inside.files import MOST_READ
from afterwit_atropos.sandbox.isolation import PROGRAMS, BoxLimits, Isolation

log = logging.getLogger(__name__)
START_S = 60.0
END_S = 10.0
GRACE_S = 60.0
"""Added to a command's time, for a busy machine. Process 1 ends commands itself: this bounds process 1."""
LONGEST_ANSWER = 16 << 20


class BoxEnded(AfterwitError):
    """A box of commands ended, or does not answer: its content is lost."""


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
        """A file's text. OSError if the file is missing or has more than `MOST_READ` bytes."""
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
async def open_box(isolation: Isolation, limits: BoxLimits | None = None) -> AsyncIterator[Box]:
    """A box with an empty working folder, closed at the end with everything in it."""
    limits = limits or BoxLimits()
    with tempfile.TemporaryDirectory(prefix="afterwit-box-") as root:
        process = await asyncio.create_subprocess_exec(
            *isolation.command(limits, root),
            cwd=PROGRAMS,
            env={**isolation.environment, **({} if isolation.isolated else {"HOME": root})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=LONGEST_ANSWER,
        )
        box = Box(process, isolation, isolation.limits(limits))
        try:
            await box._answer(START_S)  # process 1 is ready
            if isolation.isolated:  # it holds what it needs of the folder, so that a kill leaves nothing
                shutil.rmtree(root)
            yield box
        finally:
            await box.close()


def _checked(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    if "error" in answer:
        raise OSError(answer["error"])
    return answer
