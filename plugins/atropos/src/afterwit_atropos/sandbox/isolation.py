"""How process 1 of a box is started, by bubblewrap or without isolation, and the limits that hold in it."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from afterwit.api.settings import above
from afterwit.api.turns import SettingError
from afterwit_atropos.sandbox.inside.files import SEEN_AS

MIB = 1 << 20
PROGRAMS = Path(__file__).parent
"""Holds the package `inside`, which process 1 runs."""
PACKAGE = PROGRAMS.resolve().parent
"""Holds hidden tests."""
INSIDE = "/box"
PYTHON = ("-E", "-s", "-S", "-B", "-m", "inside.init")
ENVIRONMENT = {
    "PATH": f"{INSIDE}/bin:{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}
TRIAL_S = 60.0
ZEROS = 1 << 30
"""Bytes of /dev/zero in a box."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")
READABLE = (*SYSTEM, sys.base_prefix)
"""The machine's folders that a box can read, and not write."""


class IsolationMissing(SettingError):
    """This machine cannot isolate the commands that a model writes. The message lists what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxLimits:
    """Limits of one command, all its processes together, and of the box's disk."""

    seconds: float = 10.0
    cpu_seconds: float = 10.0
    memory_bytes: int = 512 * MIB
    """Anonymous and shared memory. Files in the box are memory too: see `disk_bytes`."""
    processes: int = 64
    """Threads count."""
    file_bytes: int = 16 * MIB
    """One file."""
    disk_bytes: int = 64 * MIB
    """The working folder; temporary files and shared memory may take half as much each."""
    files: int = 10_000
    """Files and folders in the box."""
    output_bytes: int = 16_000
    """Of what a command prints; the rest is counted and dropped."""

    def __post_init__(self) -> None:
        above(self, 0, *self.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """One way to start process 1 of a box. The name is in each log line of a command."""

    name: str
    command: Callable[[BoxLimits, str], Sequence[str]]
    """The command line for a box with these limits; and an empty folder that exists until the box is ready,
    in which a box without isolation works."""
    environment: Mapping[str, str]
    isolated: bool = True

    def limits(self, limits: BoxLimits) -> dict[str, Any]:
        """The limits of a command, as process 1 reads them."""
        release = platform.release().split("-")[0].split(".")
        kernel = tuple(int(part) for part in release[:2] if part.isdecimal())
        alone = self.isolated and (_is_root() or kernel >= (5, 14))  # then the kernel counts a box's alone
        each = {
            "cpu": int(limits.cpu_seconds) + 1,
            "as": limits.memory_bytes,
            "fsize": limits.file_bytes,
            "nproc": limits.processes + 1 if alone else None,
            "nofile": 256,
            "core": 0,
        }
        names = ("seconds", "cpu_seconds", "memory_bytes", "processes", "files", "output_bytes")
        return {
            **{name: getattr(limits, name) for name in names},
            "each": each,
            "isolated": self.isolated,
            "file_systems": (SEEN_AS, "/tmp", "/dev/shm") if self.isolated else (),
        }


def find_isolation(*, unsafe: bool = False, find: Callable[[str], str | None] = shutil.which) -> Isolation:
    """The isolation that works here. IsolationMissing lists what to install.

    `unsafe`: none at all; commands then run with this user's rights. `find` returns a program's path.
    """
    if unsafe:
        return UNSAFE
    reason = why_not(find("bwrap"))
    if reason is None:
        return bubblewrap()
    raise IsolationMissing(
        f"nothing here isolates the commands that a model writes: {reason}. Install bubblewrap 0.6 or newer "
        "(apt-get install bubblewrap, dnf install bubblewrap), on a kernel and in a container that allow "
        "namespaces; on macOS use a Linux machine. --unsafe-sandbox runs them with all your rights instead."
    )


@cache
def why_not(program: str | None) -> str | None:
    """Why bubblewrap cannot make a box here; None if a trial can."""
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
    lines = tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"]
    return f"bubblewrap does not work ({lines[-1]})"


def seen_in(place: Path) -> str | None:
    """The folder of the machine through which commands in a box can read a file; None if they cannot."""
    real = place.resolve()
    if real.is_relative_to(PACKAGE):
        return None
    return next((folder for folder in READABLE if real.is_relative_to(Path(folder).resolve())), None)


def bubblewrap(*, system: Sequence[str] = READABLE, hidden: Path = PACKAGE) -> Isolation:
    """Boxes of bubblewrap that can read the system's folders, but nothing of the hidden one."""

    def command(limits: BoxLimits, root: str) -> list[str]:
        uid = ["--uid", str((1 << 30) + secrets.randbelow(1 << 30))] if _is_root() else []
        return [
            *(shutil.which("bwrap") or "bwrap", *_namespaces(), *_own_file_systems(limits, root)),
            *_machine(system, hidden),
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", INSIDE, "--"),
            *(os.path.realpath(sys.executable), *PYTHON, SEEN_AS, *uid),
        ]

    return Isolation(name="bubblewrap", command=command, environment=ENVIRONMENT | {"HOME": SEEN_AS})


def _namespaces() -> list[str]:
    """Namespaces and rights. Root makes them as root and then becomes a user that no one else is."""
    shared = [f"--unshare-{name}" for name in ("ipc", "pid", "net", "uts", "cgroup-try")]
    rights = ["--cap-drop", "ALL"]
    if _is_root():
        rights += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        shared.append("--unshare-user")
    return [*shared, *rights, "--die-with-parent", "--new-session", "--as-pid-1"]


def _own_file_systems(limits: BoxLimits, root: str) -> list[str]:
    """File systems of the box's own, with a size; everything else is read-only."""
    zeros = Path(root) / "zeros"  # in place of /dev/zero, which gives memory that no process seems to hold
    zeros.touch()
    os.truncate(zeros, ZEROS)
    zeros.chmod(0o444)
    parts = ["--proc", "/proc", "--dev", "/dev", "--ro-bind", str(zeros), "/dev/zero"]
    half = limits.disk_bytes // 2
    for place, size in {"/tmp": half, "/dev/shm": half, SEEN_AS: limits.disk_bytes}.items():
        parts += ["--perms", "1777", "--size", str(size), "--tmpfs", place]
    return parts


def _machine(system: Sequence[str], hidden: Path) -> list[str]:
    """The machine's folders, the interpreter and process 1's program, read-only."""
    parts: list[str] = []
    folders = [folder for folder in system if Path(folder).exists()]
    seen = (*folders, f"{INSIDE}/bin/python")
    above = dict.fromkeys(str(parent) for each in seen for parent in list(Path(each).parents)[-2::-1])
    for folder in above:  # from the top down; every user in the box may pass them
        parts += ["--perms", "0755", "--dir", folder]
    for folder in folders:
        parts += ["--ro-bind", folder, folder]
    if any(hidden.is_relative_to(Path(folder).resolve()) for folder in folders):
        parts += ["--tmpfs", str(hidden), "--remount-ro", str(hidden)]
    for name in ("python", "python3"):
        parts += ["--symlink", os.path.realpath(sys.executable), f"{INSIDE}/bin/{name}"]
    return [*parts, "--ro-bind", str(PROGRAMS / "inside"), f"{INSIDE}/inside"]


def _is_root() -> bool:
    return os.getuid() == 0


UNSAFE = Isolation(
    name="UNSAFE: no isolation",
    command=lambda limits, root: [os.path.realpath(sys.executable), *PYTHON, root, "--unsafe"],
    environment=ENVIRONMENT,
    isolated=False,
)
