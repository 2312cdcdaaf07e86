"""One server at a time: started, waited for, killed and started again, ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.servers import guard
from tests.servers.commands import COMMANDS, Command

START_S = 600.0
"""Longest wait until a server is ready: two busy cores may need minutes."""
END_S = guard.GRACE_S + 30.0
TAIL = 4000
"""Characters of the log that a failure shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A server to start."""

    server: str
    """A name in COMMANDS."""
    model: Path
    flags: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Server:
    """A server at a port of its own, which it keeps when it is started again."""

    launch: Launch
    log: Path
    port: int = field(default_factory=lambda: _free_port())
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it is ready. RuntimeError, with the end of its log, if it never is."""
        launch = self.launch
        command = COMMANDS[launch.server](launch.model, self.port, launch.flags)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, guard.__file__, *command.arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**_plain_environment(), **command.environment, **dict(launch.environment)},
                start_new_session=True,
            )
        try:
            self._wait_until_ready(command)
        except BaseException:
            self.end()
            raise

    def _wait_until_ready(self, command: Command) -> None:
        until = time.monotonic() + START_S
        while not _answers(self.url + command.ready):
            if not self.is_running:
                raise RuntimeError(self._failure("ended before it was ready"))
            if time.monotonic() > until:
                raise RuntimeError(self._failure(f"was not ready within {START_S:.0f} s"))
            time.sleep(0.5)

    def _failure(self, what: str) -> str:
        tail = self.log.read_text(errors="replace")[-TAIL:]
        return f"{self.launch.server} {what}. The end of {self.log}:\n{tail}"

    def kill(self) -> None:
        """As a crash would: each of its processes gets SIGKILL."""
        self._tell(b"k")

    def end(self) -> None:
        """End it with all that it started. Nothing happens if it does not run."""
        self._tell(b"")

    def _tell(self, word: bytes) -> None:
        if (process := self._process) is None:
            return
        self._process = None
        if process.poll() is None:
            process.communicate(word, timeout=END_S)


class Servers:
    """Holds at most one running server; the last one ends with it."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._server: Server | None = None
        self._started = 0

    def get(self, launch: Launch) -> Server:
        """The server that was launched like this: the running one if it is, else a new one in its place."""
        if self._server is not None and self._server.launch == launch:
            if not self._server.is_running:
                self._server.start()
            return self._server
        self.end()
        self._started += 1
        server = Server(launch, self._logs / f"{self._started}-{launch.server}.log")
        server.start()
        self._server = server
        return server

    def end(self) -> None:
        if self._server is not None:
            self._server.end()
            self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _plain_environment() -> dict[str, str]:
    """Ours, without what would make the server's Python find our packages."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False
