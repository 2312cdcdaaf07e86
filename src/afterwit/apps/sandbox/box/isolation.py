"""What keeps a box's commands in: the isolation that this machine has, tried before it is used.

There is no quiet fall-back: where no isolation can be had, `walls` raises `IsolationMissing`.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import afterwit
from afterwit.apps.sandbox.box.inside.files import SEEN_AS
from afterwit.apps.sandbox.box.limits import BoxLimits
from afterwit.core.errors import IsolationMissing

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
