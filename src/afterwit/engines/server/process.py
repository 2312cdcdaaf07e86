"""A model server that Afterwit starts: its start, its restarts, its end, and the faults in its log."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import dropwhile, takewhile
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from afterwit import parent
from afterwit.engines.server.server import ServerCommand
from afterwit.errors import SettingError
from afterwit.worker import BackOff

LOOK_S = 1.0
LOOKS = 10
"""How many refused connections in a row end a server that served."""
STOP_S = 20.0
"""Seconds between SIGTERM and SIGKILL."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 10.0
STEADY_S = 60.0
"""A server that ran this long was healthy: the next pause is the shortest again."""
SCRATCH = "aw-"
"""The prefix of its temporary folder: short, since the path of a socket has at most 103 characters."""

log = logging.getLogger(__name__)

LAST_LINES, AFTER_CAUSE = 15, 3
"""Last lines of a log that an error shows: without a cause, and after one."""
CAUSE_LINES = 4
"""Lines of a cause after its first."""
LONGEST_LINE = 400
"""Characters of a line."""
LOG_PREFIX = re.compile(
    r"^(?:\([^)]*\bpid=\d+\) ?)?"  # vLLM: (EngineCore pid=7) ERROR 11-26 01:12:50 [core.py:1510]
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?: \[[^\]]*\])? ?)?"
    r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] ?)?"  # SGLang: [2026-11-26 01:12:50 TP0]
)
"""A server's prefix of a log line."""
RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure)?(?::|$)")
"""The line of a traceback that names the exception."""
STEPS = (
    ("ready", ("Application startup complete", "Starting vLLM server on", "fired up and ready")),
    ("capturing graphs", ("Capturing CUDA graphs", "Capture cuda graph begin")),
    ("making room for keys and values", ("KV cache size:", "KV cache layout", "KV Cache is allocated")),
    ("compiling", ("Dynamo bytecode transform", "Compiling a graph", "torch.compile takes")),
    ("loading the weights", ("Starting to load model", "Load weight begin")),
    ("starting its engine", ("Initializing a V1 LLM engine", "Init torch distributed begin")),
    ("reading the model's configuration", ("non-default args:", "server_args=")),
)
"""The steps of a start, the last first, and what a server logs then."""


class EngineProcess:
    """One server in a process group of its own. It gets SIGTERM if this process dies, however it dies.

    It has its own folder for temporary files, because a killed server leaves sockets and files. The next
    server of this home and name gets the same folder, so a kill of this process leaves at most one.
    """

    def __init__(
        self,
        command: ServerCommand,
        url: str,
        home: Path,
        *,
        name: str = "engine",
        first_pause_s: float = FIRST_PAUSE_S,
        look_s: float = LOOK_S,
        once: bool = False,
    ) -> None:
        """`url` will be its address; its log is in `home`, by its name. `once`: it is not started again."""
        self.command, self._url = command, url.rstrip("/")
        self._back_off = BackOff(base_s=first_pause_s, max_s=LONGEST_PAUSE_S)
        self._look_s, self._once = look_s, once
        self.name, self.log = name, home / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None
        scratch = f"{SCRATCH}{hashlib.sha256(bytes(self.log.resolve())).hexdigest()[:12]}"
        self._scratch = Path(tempfile.gettempdir(), scratch)
        self._watching: asyncio.Task[None] | None = None
        self.trouble: str | None = None
        """Why it ended and when it starts again, for people; None: it runs, or loads."""

    async def start(self, *, within_s: float, progress: Callable[[str], None]) -> None:
        """Start it, wait until it answers, and keep it running from then on. `progress` gets the step.

        SettingError, with the cause and the end of its log, if it ends or takes too long; also if something
        else answers at its address.
        """
        if await self._answers():
            raise SettingError(
                f"something answers at {self._url} already: attach to it with `afterwit serve`, or choose "
                f"another address for the {self.name} server"
            )
        process = await self._spawn(fresh=True)

        def why() -> str:
            killed = process.returncode == -signal.SIGKILL
            death = "It was killed, perhaps for lack of memory. " if killed else ""
            return death + end_of(self.log.read_text(errors="replace"), self.log)

        try:
            async with asyncio.timeout(within_s):
                while not await self._answers():
                    if process.returncode is not None:
                        raise SettingError(f"the {self.name} server ended before it answered. {why()}")
                    progress(step_of(self.log.read_text(errors="replace")))
                    await asyncio.sleep(self._look_s)
        except TimeoutError as error:
            raise SettingError(
                f"the {self.name} server did not answer within {within_s:g} s (engine.start_s). {why()}"
            ) from error
        if not self._once:
            self._watching = asyncio.create_task(self._keep_alive(process))

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.returncode is not None

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if (process := self._process) is None:
            return
        _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            log.warning("the %s server did not stop in %g s: it is killed", self.name, STOP_S)
        await self._end(process)

    def kill(self) -> None:
        if self._process is not None:
            _signal(self._process, signal.SIGKILL)

    async def _spawn(self, *, fresh: bool) -> asyncio.subprocess.Process:
        """Start it. Only the owner may read its log: a server may log prompts."""
        compiled = str(self.log.with_name("compiled"))  # kept for the next start, where no other user writes
        own = {**self.command.environment, "TMPDIR": str(self._scratch)}
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if fresh else os.O_APPEND)
        try:
            with os.fdopen(os.open(self.log, flags, 0o600), "ab") as out:
                shutil.rmtree(self._scratch, ignore_errors=True)
                self._scratch.mkdir(mode=0o700)
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", parent.__file__, str(os.getpid())),
                    *self.command.arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env={"TORCHINDUCTOR_CACHE_DIR": compiled, **os.environ, **own},
                    start_new_session=True,
                )
        except OSError as error:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise SettingError(f"the {self.name} server cannot be started: {error}") from error
        return self._process

    async def _keep_alive(self, process: asyncio.subprocess.Process) -> None:
        """Start it again when it ends, after growing pauses; also when it could not be started."""
        loop, deaths = asyncio.get_running_loop(), 0
        running: asyncio.subprocess.Process | None = process
        while True:
            began = loop.time()
            try:
                served, running = running is not None, running or await self._spawn(fresh=False)
                self.trouble = None
                why = f"the {self.name} server ended ({await self._ended(running, served)})"
            except SettingError as error:
                why = str(error)
            running = None
            deaths = 1 if loop.time() - began > STEADY_S else deaths + 1
            wait_s = self._back_off.after(deaths)
            self.trouble = f"{why}; it starts again in {wait_s:.0f} s; its log is {self.log}"
            log.warning("%s", self.trouble)
            await asyncio.sleep(wait_s)

    async def _ended(self, process: asyncio.subprocess.Process, listened: bool) -> int:
        """Wait until it ends, and clean up. Returns its exit code.

        It is ended if it does not listen for a while, though it did before: vLLM whose engine died closes its
        port, and may wait for its own tasks forever.
        """
        ended, refused = asyncio.create_task(process.wait()), 0
        try:
            while refused < LOOKS and not (await asyncio.wait({ended}, timeout=self._look_s))[0]:
                listens = await self._listens()
                listened = listened or listens
                refused = 0 if listens else refused + listened
        finally:
            ended.cancel()
        return await self._end(process)

    async def _listens(self) -> bool:
        """Whether a connection is not refused; a busy server may take long to accept one."""
        address = urlsplit(self._url)
        try:
            async with asyncio.timeout(LOOK_S):
                _, writer = await asyncio.open_connection(address.hostname, address.port)
        except (TimeoutError, OSError) as error:
            return not isinstance(error, ConnectionRefusedError)
        writer.close()
        return True

    async def _end(self, process: asyncio.subprocess.Process) -> int:
        """Kill its remaining processes, which would keep its memory and its port."""
        _signal(process, signal.SIGKILL)
        code = await process.wait()
        self._process = None
        shutil.rmtree(self._scratch, ignore_errors=True)
        return code

    async def _answers(self) -> bool:
        timeout = aiohttp.ClientTimeout(total=10)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                async with session.get(f"{self._url}/health") as response:
                    return response.status == 200
        except (aiohttp.ClientError, OSError):
            return False


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def step_of(log: str) -> str:
    found = (step for step, words in STEPS if any(each in log for each in words))
    return next(found, "importing its libraries")


def cause_of(lines: Sequence[str]) -> list[str]:
    """The exception of the log's first traceback, which later ones only repeat. [] if there is none."""
    words = [LOG_PREFIX.sub("", line) for line in lines]
    trace = dropwhile(lambda at: "Traceback (most recent call last):" not in words[at], range(len(words)))
    raised = next((at for at in trace if RAISED.match(words[at])), None)
    if raised is None:
        return []
    more = takewhile(lambda each: each.startswith((" ", "\t")), words[raised + 1 : raised + 1 + CAUSE_LINES])
    return [each[:LONGEST_LINE] for each in (words[raised], *more)]


def end_of(log: str, where: object) -> str:
    """Why a server with this log ended, for people: the cause, the last lines, and where the log is."""
    lines = log.splitlines()
    if cause := cause_of(lines):
        end = lines[-AFTER_CAUSE:]
        return "\n".join(["It failed with:", *cause, f"The end of its log, {where}:", *end])
    return "\n".join([f"The end of its log, {where}:", *lines[-LAST_LINES:]])
