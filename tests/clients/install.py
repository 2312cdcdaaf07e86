"""Installs a client once, into a folder of its own beneath build/clients, and finds it again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[2] / "build" / "clients"
LIMIT_S = 900.0
"""Seconds that one step of an installation may take."""


class NotInstallable(Exception):
    """The client cannot be installed on this machine, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The folder of an installed client."""

    folder: Path

    def command(self, name: str) -> str:
        """The path of a program in the folder. NotInstallable if it is missing."""
        for place in (self.folder / "bin", self.folder / "node_modules" / ".bin"):
            if (place / name).exists():
                return str(place / name)
        raise NotInstallable(f"its packages hold no command {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pip:
    """Python packages, in a virtual environment of their own."""

    packages: tuple[str, ...]

    def commands(self, folder: Path) -> list[list[str]]:
        python = str(folder / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        return [[sys.executable, "-m", "venv", str(folder)], [*pip, *self.packages]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Npm:
    """npm packages, in a folder of their own."""

    packages: tuple[str, ...]
    node: str | None = None
    """A version of Node that is installed first and runs them; None: the machine's own."""

    def commands(self, folder: Path) -> list[list[str]]:
        npm = ["npm", "install", "--prefix", str(folder), "--no-fund", "--no-audit", "--loglevel=error"]
        return [*([[*npm, f"node@{self.node}"]] if self.node else []), [*npm, *self.packages]]


def install(name: str, packages: Pip | Npm, *, until: float) -> Installed:
    """The client, installed now or by an earlier run. NotInstallable if it cannot be.

    `until`: the moment, on the monotonic clock, when the installation is given up.
    """
    folder = HERE / name
    done, wanted = folder / ".installed", _fingerprint(packages)
    if not (done.exists() and done.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for command in packages.commands(folder):
            _run(command, folder, min(LIMIT_S, until - time.monotonic()))
        done.write_text(wanted)
    return Installed(folder=folder)


def _fingerprint(packages: Pip | Npm) -> str:
    return hashlib.sha256(repr((packages, sys.version)).encode()).hexdigest()


def _run(command: list[str], folder: Path, limit_s: float) -> None:
    if limit_s <= 0:
        raise NotInstallable("the suite's time is over")
    path = os.pathsep.join([str(folder / "node_modules" / ".bin"), os.environ["PATH"]])
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PATH": path},
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise NotInstallable(f"there is no {command[0]} here") from error
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise NotInstallable(f"{command[0]} took more than {limit_s:.0f} s") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with all that it started
        process.communicate()
    if process.returncode:
        said = " ".join((err or out or "nothing").split())
        raise NotInstallable(f"{Path(command[0]).name} said: ...{said[-300:]}")
