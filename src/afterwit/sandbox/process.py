"""Run one command in a workspace: no shell, limited, and ended with all its processes.

With bubblewrap a command sees only its workspace and the system's programs: no network, no other processes,
no other files to write. Without bubblewrap only the limits hold: the command can read what its user can read
and open sockets, and as root the limit on processes does not hold. Its processes are ended wherever they
moved to, if the machine has /proc and they kept their environment. `weakness()` says which it is.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

from afterwit.sandbox.workspace import SEEN_AS

MIB = 1 << 20


MARK = "SANDBOX_COMMAND"
"""The environment variable by which a command's processes are found: each command has a value of its own."""


ROUNDS = 100
"""How often the processes are looked for again: some may have started others meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one command may use."""

    seconds: float = 5.0
    cpu_seconds: int = 5
    memory_bytes: int = 512 * MIB
    file_bytes: int = 16 * MIB
    processes: int = 256
    """More than the user had when the first command ran. The kernel does not hold root to it."""
    output_chars: int = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a command ended: its exit status (negative: killed by that signal) and what it printed."""

    status: int
    output: str
    timed_out: bool = False


def run(argv: Sequence[str], root: Path, limits: Limits | None = None) -> Outcome:
    """Run a command with `root` as its folder; a command that cannot start has status 127."""
    if not argv:
        return Outcome(status=127, output="no command")
    bounds = _bounds(limits := limits or Limits())
    with tempfile.TemporaryFile() as printed:
        environment = _environment(root)
        try:
            child = subprocess.Popen(
                [*_setter(bounds), *_wrapped(argv, root, environment["PATH"])],
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=None if _prlimit() else _limiter(bounds),
            )
        except (OSError, ValueError) as error:
            return Outcome(status=127, output=f"{argv[0]}: {_reason(error)}")
        timed_out = _wait(child, limits.seconds, environment[MARK])
        printed.seek(0)
        text = printed.read(4 * limits.output_chars).decode("utf-8", "replace")[: limits.output_chars]
    return Outcome(status=child.returncode, output=text, timed_out=timed_out)


def confined() -> bool:
    """Whether bubblewrap works here, so that a command reaches nothing outside its workspace."""
    return _bwrap() is not None


def weakness() -> str | None:
    """What a command can do here that it should not, in a sentence; None if it is confined."""
    if confined():
        return None
    root = ", and start any number of processes, because this is root" if os.getuid() == 0 else ""
    return (
        "bubblewrap does not work here: the agent's commands have limits of time and memory, "
        f"but they can read your files and open sockets{root}"
    )


def _wait(child: subprocess.Popen[bytes], seconds: float, mark: str) -> bool:
    """Whether the time was up. Afterwards none of the command's processes runs."""
    try:
        child.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if not confined():  # with bubblewrap its end is the end of all that ran inside
            _end_all(mark)


def _end_all(mark: str) -> None:
    """End what the command started and moved to a session of its own."""
    for _ in range(ROUNDS):
        left = list(_processes(f"{MARK}={mark}".encode()))
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not left:
            return


def _processes(variable: bytes) -> Iterator[int]:
    """Processes with this variable in their environment; none on a machine without /proc."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _bounds(limits: Limits) -> Mapping[str, int]:
    """Each resource's limit, soft and hard, by its name: at most what this process has itself."""
    wanted = {
        "cpu": limits.cpu_seconds,
        "as": limits.memory_bytes,
        "fsize": limits.file_bytes,
        "nproc": _threads_of_this_user() + limits.processes,
        "core": 0,
    }
    hard = {name: resource.getrlimit(_number(name))[1] for name in wanted}
    return {
        name: value if hard[name] == resource.RLIM_INFINITY else min(value, hard[name])
        for name, value in wanted.items()
    }


def _setter(bounds: Mapping[str, int]) -> list[str]:
    """The program that sets the limits and becomes the command; empty if this machine has none.

    Limits set by this process would need a fork of it, which costs in proportion to its memory.
    """
    program = _prlimit()
    flags = [f"--{name}={value}:{value}" for name, value in bounds.items()]
    return [program, *flags, "--"] if program else []


def _limiter(bounds: Mapping[str, int]) -> Callable[[], None]:
    """As `_setter`, for a machine without that program."""

    def apply() -> None:
        for name, value in bounds.items():
            with contextlib.suppress(ValueError, OSError):  # macOS knows no limit on address space
                resource.setrlimit(_number(name), (value, value))

    return apply


def _number(name: str) -> int:
    number: int = getattr(resource, f"RLIMIT_{name.upper()}")
    return number


@cache
def _prlimit() -> str | None:
    return shutil.which("prlimit")


@cache
def _threads_of_this_user() -> int:
    """How many threads this user already has: the kernel's limit counts them all, not the command's own."""
    mine, threads = os.getuid(), 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            threads += len(os.listdir(process / "task")) if process.stat().st_uid == mine else 0
    return threads


@cache
def _pythons() -> str:
    """A folder with `python` and `python3`, both this interpreter; it is removed as the process ends."""
    folder = tempfile.mkdtemp(prefix="afterwit-bin-")
    Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=0)  # also in multiprocessing's children
    for name in ("python", "python3"):
        Path(folder, name).symlink_to(os.path.realpath(sys.executable))
    return folder


def _environment(root: Path) -> Mapping[str, str]:
    return {
        "PATH": f"{_pythons()}:/usr/local/bin:/usr/bin:/bin",
        "HOME": SEEN_AS if confined() else str(root),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        MARK: secrets.token_hex(8),
    }


def _wrapped(argv: Sequence[str], root: Path, path: str) -> list[str]:
    program = _bwrap()
    if program is None:
        return [shutil.which(argv[0], path=path) or argv[0], *argv[1:]]
    work = ["--ro-bind", _pythons(), _pythons(), "--bind", str(root), SEEN_AS, "--chdir", SEEN_AS]
    return [program, *_walls(), *work, "--", *argv]


@cache
def _walls() -> tuple[str, ...]:
    system = ("/usr", "/lib", "/lib64", "/bin", sys.base_prefix)
    binds = [part for folder in system if Path(folder).exists() for part in ("--ro-bind", folder, folder)]
    alone = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
    return (*alone, *binds, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")


@cache
def _bwrap() -> str | None:
    """The path of a bubblewrap that works here, tried once."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    trial = [program, *_walls(), "--", "true"]
    works = subprocess.run(trial, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return program if works.returncode == 0 else None


def _reason(error: Exception) -> str:
    return "command not found" if isinstance(error, FileNotFoundError) else str(error)
