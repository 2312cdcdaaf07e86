"""Run one command in a workspace: no shell, bounded, and gone when its time is up.

Every command gets a process group of its own, resource limits, an environment without secrets and, where the
machine allows bubblewrap, its own view of the system: no network, no other processes, no other files to
write. Without bubblewrap the limits hold, but the command can read what its user can read: run strangers'
code only where `confinement()` says "bwrap".
"""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from afterwit.apps.sandbox.workspace import SEEN_AS

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one command may use."""

    seconds: float = 5.0
    cpu_seconds: int = 5
    memory_bytes: int = 512 * MIB
    file_bytes: int = 16 * MIB
    processes: int = 256
    """Beyond those the user had when the first command ran."""
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
        try:
            child = subprocess.Popen(
                [*_setter(bounds), *_wrapped(argv, root)],
                cwd=root,
                env=_environment(root),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=None if _prlimit() else _limiter(bounds),
            )
        except (OSError, ValueError) as error:
            return Outcome(status=127, output=f"{argv[0]}: {_reason(error)}")
        timed_out = _wait(child, limits.seconds)
        printed.seek(0)
        text = printed.read(4 * limits.output_chars).decode("utf-8", "replace")[: limits.output_chars]
    return Outcome(status=child.returncode, output=text, timed_out=timed_out)


def confinement() -> str:
    """How commands are confined on this machine: `bwrap` or `limits`."""
    return "bwrap" if _bwrap() else "limits"


def _wait(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


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
    """The program that sets the limits and becomes the command. Set from here they would take a fork of this
    process, which costs by the memory that it holds.
    """
    program = _prlimit()
    flags = [f"--{name}={value}:{value}" for name, value in bounds.items()]
    return [program, *flags, "--"] if program else []


def _limiter(bounds: Mapping[str, int]) -> Callable[[], None]:
    """The same where there is no such program."""

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
def _commands() -> str:
    """A folder with `python` and `python3`, both this interpreter; it lives as long as the process."""
    folder = Path(tempfile.mkdtemp(prefix="afterwit-bin-"))
    for name in ("python", "python3"):
        (folder / name).symlink_to(os.path.realpath(sys.executable))
    return str(folder)


def _environment(root: Path) -> Mapping[str, str]:
    return {
        "PATH": f"{_commands()}:/usr/local/bin:/usr/bin:/bin",
        "HOME": SEEN_AS if _bwrap() else str(root),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _wrapped(argv: Sequence[str], root: Path) -> list[str]:
    program = _bwrap()
    if program is None:
        path = _environment(root)["PATH"]
        return [shutil.which(argv[0], path=path) or argv[0], *argv[1:]]
    return [program, *_walls(), "--bind", str(root), SEEN_AS, "--chdir", SEEN_AS, "--", *argv]


@cache
def _walls() -> tuple[str, ...]:
    readable = [
        folder for folder in ("/usr", "/lib", "/lib64", "/bin", sys.base_prefix) if Path(folder).exists()
    ]
    binds = [part for folder in readable for part in ("--ro-bind", folder, folder)]
    return (
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        *binds,
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--ro-bind",
        _commands(),
        _commands(),
    )


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
