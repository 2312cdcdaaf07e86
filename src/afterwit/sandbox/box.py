"""A box: one working folder and the commands in it, kept in by `Walls`, gone when it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import afterwit
from afterwit.errors import BoxEnded, IsolationMissing
from afterwit.sandbox.inside.files import SEEN_AS

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


MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxLimits:
    """What one command may use, all its processes together, and what the box holds on disk."""

    seconds: float = 10.0
    cpu_seconds: float = 10.0
    memory_bytes: int = 512 * MIB
    """Anonymous and shared memory. Files in the box are memory too: see `disk_bytes`."""
    processes: int = 64
    """Threads count."""
    file_bytes: int = 16 * MIB
    """One file."""
    disk_bytes: int = 64 * MIB
    """The working folder. Half of it again for temporary files, as much for shared memory."""
    files: int = 10_000
    """Files and folders in the box."""
    output_bytes: int = 16_000
    """Of what a command prints; the rest is counted, not kept."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")

    def for_init(self, *, isolated: bool, counts_processes: bool) -> dict[str, Any]:
        """As process 1 takes them. `counts_processes`: the kernel counts a box's processes alone."""
        each = {
            "cpu": int(self.cpu_seconds) + 1,
            "as": self.memory_bytes,
            "fsize": self.file_bytes,
            "nproc": self.processes + 1 if counts_processes else None,
            "nofile": 256,
            "core": 0,
        }
        together = {
            name: getattr(self, name)
            for name in ("seconds", "cpu_seconds", "memory_bytes", "processes", "files", "output_bytes")
        }
        return {**together, "each": each, "isolated": isolated}


PROGRAMS = Path(__file__).parent
"""Holds the package `inside`, as commands find it."""


PACKAGE = Path(afterwit.__file__).resolve().parent
"""It holds hidden tests."""


INSIDE = "/box"


PYTHON = ("-E", "-s", "-S", "-B", "-m", "inside.init")


TRIAL_S = 60.0


ZEROS = 1 << 30
"""Bytes that /dev/zero has in a box."""


SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")


READ = (*SYSTEM, sys.base_prefix)
"""What a box sees of the machine; none of it can be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """One way to start process 1 of a box. The name is in each log line of a command."""

    name: str
    command: Callable[[BoxLimits, str], Sequence[str]]
    """The command line for a box with these limits, and an empty folder that is there until it is ready; an
    unsafe box works in it, to its end."""
    environment: dict[str, str]
    isolated: bool = True

    @property
    def counts_processes(self) -> bool:
        """Whether the kernel counts the processes of a box alone, so that it can limit them itself."""
        return self.isolated and (_is_root() or _kernel() >= (5, 14))


def walls(*, unsafe: bool = False, find: Callable[[str], str | None] = shutil.which) -> Walls:
    """The isolation that works here. Raises IsolationMissing, which says what to install.

    `unsafe`: none at all. Commands then run with this user's rights. `find` gives a program's path.
    """
    if unsafe:
        return UNSAFE
    reason = _refusal(find("bwrap"))
    if reason is None:
        return bubblewrap()
    raise IsolationMissing(
        f"nothing here isolates the commands that a model writes: {reason}. Install bubblewrap 0.6 or newer "
        "(apt-get install bubblewrap, dnf install bubblewrap), on a kernel and in a container that allow "
        "namespaces; on macOS take a Linux machine. --unsafe-sandbox runs them with all your rights instead."
    )


def seen_in(place: Path) -> str | None:
    """The folder of the machine by which commands in a box can read a file; None if they cannot."""
    real = place.resolve()
    if real.is_relative_to(PACKAGE):
        return None
    return next((folder for folder in READ if real.is_relative_to(Path(folder).resolve())), None)


def bubblewrap(*, system: Sequence[str] = READ, hidden: Path = PACKAGE) -> Walls:
    """Boxes of bubblewrap that see the system's folders, to be read, but nothing of the hidden one."""
    return Walls(
        name="bubblewrap",
        command=lambda limits, root: _bubblewrap(limits, _seen(system, hidden), _zeros(root)),
        environment=_environment(SEEN_AS),
    )


@cache
def _refusal(program: str | None) -> str | None:
    """Why bubblewrap gives no box here; None if a trial box came up."""
    if sys.platform != "linux":
        return f"this is {platform.system()}, and only Linux has the namespaces that it takes"
    if program is None:
        return "bubblewrap is not installed"
    trial = bubblewrap()
    try:
        with tempfile.TemporaryDirectory(prefix="afterwit-box-") as root:
            tried = subprocess.run(
                trial.command(BoxLimits(), root),
                env=trial.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TRIAL_S,
                check=False,
            )
        if json.loads(tried.stdout or "{}").get("ready") == 1:
            return None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work ({error})"
    said = tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"]
    return f"bubblewrap does not work ({said[-1]})"


def _bubblewrap(limits: BoxLimits, seen: Sequence[str], zeros: Path) -> list[str]:
    program = shutil.which("bwrap") or "bwrap"
    uid = ["--uid", str((1 << 30) + secrets.randbelow(1 << 30))] if _is_root() else []
    closed = ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", INSIDE]
    return [program, *_alone(), *_own(limits, zeros), *seen, *closed, "--", *_init(), SEEN_AS, *uid]


def _alone() -> list[str]:
    """Namespaces and rights. Root makes them as root and then becomes a user that nobody else is."""
    shared = [f"--unshare-{name}" for name in ("ipc", "pid", "net", "uts", "cgroup-try")]
    rights = ["--cap-drop", "ALL"]
    if _is_root():
        rights += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        shared.append("--unshare-user")
    return [*shared, *rights, "--die-with-parent", "--new-session", "--as-pid-1"]


def _seen(system: Sequence[str], hidden: Path) -> list[str]:
    folders = [folder for folder in system if Path(folder).exists()]
    above = {str(parent): None for folder in (*folders, f"{INSIDE}/bin/python") for parent in _above(folder)}
    binds = [part for folder in above for part in ("--perms", "0755", "--dir", folder)]
    binds += [part for folder in folders for part in ("--ro-bind", folder, folder)]
    if any(hidden.is_relative_to(Path(folder).resolve()) for folder in folders):
        binds += ["--tmpfs", str(hidden), "--remount-ro", str(hidden)]
    python = os.path.realpath(sys.executable)
    names = [part for name in ("python", "python3") for part in ("--symlink", python, f"{INSIDE}/bin/{name}")]
    programs = ["--ro-bind", str(PROGRAMS / "inside"), f"{INSIDE}/inside"]
    return [*binds, *names, *programs]


def _above(folder: str) -> list[Path]:
    """The folders above it from the top down. Every user in the box may pass them."""
    return list(Path(folder).parents)[-2::-1]


def _zeros(root: str) -> Path:
    """A file without size on disk, in place of /dev/zero: that gives memory that no process seems to hold."""
    file = Path(root) / "zeros"
    file.touch()
    os.truncate(file, ZEROS)
    file.chmod(0o444)
    return file


def _own(limits: BoxLimits, zeros: Path) -> list[str]:
    """File systems of the box's own, with a size; everything else can only be read."""
    half = limits.disk_bytes // 2
    sizes = {SEEN_AS: limits.disk_bytes, "/tmp": half, "/dev/shm": half}
    own = [
        part
        for place, size in sizes.items()
        for part in ("--perms", "1777", "--size", str(size), "--tmpfs", place)
    ]
    return ["--proc", "/proc", "--dev", "/dev", "--ro-bind", str(zeros), "/dev/zero", *own]


def _init() -> list[str]:
    return [os.path.realpath(sys.executable), *PYTHON]


def _is_root() -> bool:
    return os.getuid() == 0


def _kernel() -> tuple[int, ...]:
    release = platform.release().split("-")[0].split(".")
    return tuple(int(part) for part in release[:2] if part.isdecimal())


def _environment(home: str | None) -> dict[str, str]:
    held = {"PATH": f"{INSIDE}/bin:{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    return {**held, "PYTHONDONTWRITEBYTECODE": "1", **({"HOME": home} if home else {})}


UNSAFE = Walls(
    name="UNSAFE: no isolation",
    command=lambda limits, root: [*_init(), root, "--unsafe"],
    environment=_environment(None),
    isolated=False,
)
