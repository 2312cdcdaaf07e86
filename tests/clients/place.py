"""A place to run a client: folders and environment of its own, and processes that end with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LIMIT_S = 900.0
"""Seconds that one command of a client may take: a node program starts slowly where others work too."""
MARK = "AFTERWIT_CLIENT_TEST"
"""The environment variable by which a client's processes are found again, whatever group they went to."""
KEPT = ("PATH", "LANG", "LC_ALL", "TERM")
"""Variables of ours that a client sees. Everything else would be the machine's own configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The output of a command."""

    out: str
    err: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One client's folders and the gateway's address."""

    folder: Path
    url: str
    """With `/v1`."""
    until: float
    """The moment, on the monotonic clock, when no command may run any longer."""
    scratch: Path
    """The folder for its temporary files."""
    environment: dict[str, str] = field(default_factory=dict)
    """Additions of the client's configuration."""

    @property
    def root(self) -> str:
        """The base URL without `/v1`."""
        return self.url.removesuffix("/v1")

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        """The folder that the client works in."""
        return self.folder / "work"

    def make(self) -> None:
        self.home.mkdir(parents=True)
        self.work.mkdir()

    def write(self, name: str, text: str) -> Path:
        """Write a file of the client's configuration under its home."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    async def run(self, command: Sequence[str]) -> Said:
        """Run a command to its end, and end everything that it started. AssertionError if it fails."""
        limit_s = min(LIMIT_S, self.until - time.monotonic())
        assert limit_s > 0, "the suite's time is over"
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.work,
            env=self._environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), limit_s)
        except TimeoutError:
            self.end_processes()
            out, err = await process.communicate()
            raise AssertionError(f"{command[0]} took {limit_s:.0f} s:\n{_end(out)}\n{_end(err)}") from None
        finally:
            self.end_processes()
        if process.returncode:
            raise AssertionError(f"{command[0]} ended with {process.returncode}:\n{_end(out)}\n{_end(err)}")
        return Said(out=out.decode(errors="replace"), err=err.decode(errors="replace"))

    def end_processes(self) -> None:
        """Kill what still runs of this client."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """The ids of the client's running processes."""
        mark = f"{MARK}={self.folder}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def _environment(self) -> Mapping[str, str]:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        home = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / ".config")}
        home |= {"TMPDIR": str(self.scratch)}
        home |= {
            "XDG_DATA_HOME": str(self.home / ".local/share"),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
        }
        quiet = {"NO_COLOR": "1", "CI": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        return kept | home | quiet | {MARK: str(self.folder)} | self.environment


def _end(output: bytes, characters: int = 3000) -> str:
    return output.decode(errors="replace")[-characters:]
