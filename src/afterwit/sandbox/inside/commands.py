"""One command within a box: started, watched while it runs, and ended with everything it started."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import watch

TICK_S = 0.02
MOST_PRINTED = 64 << 20
"""Bytes; a command that prints more is ended."""
LINE = 1 << 20
"""Bytes of the longest answer of a program that is talked to."""


class Command:
    """A running command. `limits` are those of `Isolation.limits`.

    `talks`: it is given lines and answers each with one; its errors are not kept. Otherwise it reads nothing,
    and what it prints comes back when it ends.
    """

    def __init__(self, argv: Sequence[str], limits: Mapping[str, Any], *, talks: bool = False) -> None:
        self._limits, self._talks = limits, talks
        self._most = LINE if talks else limits["output_bytes"]
        self._status: int | None = None
        self._cpu = 0.0
        self._kept = bytearray()
        self._printed = 0
        self._is_over = False
        given, self._into = os.pipe()
        self._out, printed = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _become(argv, limits, given, printed, talks)
        os.close(given)
        os.close(printed)

    def finish(self) -> dict[str, Any]:
        """Wait for its end, or end it when it used up a limit."""
        reason = self._wait(until_line=False)
        text = bytes(self._kept).decode("utf-8", "replace")
        cut = max(self._printed - len(self._kept), 0)
        return {"status": self._status, "output": text, "cut_bytes": cut, "ended_for": reason}

    def ask(self, line: str) -> dict[str, Any]:
        """Give it a line; its answer, or why there is none."""
        self._kept.clear()
        self._printed = 0
        reason = self._give(line.encode() + b"\n") or self._wait(until_line=True)
        answer, found, _ = bytes(self._kept).partition(b"\n")
        if found and reason is None:
            return {"line": answer.decode("utf-8", "replace")}
        return {"ended_for": reason or "exit"}

    def end(self) -> None:
        """End it with everything that it started."""
        if not self._is_over:
            self._end_all()
        os.close(self._into)
        os.close(self._out)

    def _give(self, data: bytes) -> str | None:
        """Why it does not take a line; None if it took it."""
        until = time.monotonic() + self._limits["seconds"]
        try:
            while data and (left := until - time.monotonic()) > 0:
                if select.select([], [self._into], [], left)[1]:
                    data = data[os.write(self._into, data[: select.PIPE_BUF]) :]
        except BrokenPipeError:
            return "exit"
        return "time" if data else None

    def _wait(self, *, until_line: bool) -> str | None:
        """The limit that was used up; None if it ended, or answered, by itself."""
        started, looked, is_open = time.monotonic(), 0.0, True
        while True:
            ready = select.select([self._out] if is_open else [], [], [], TICK_S)[0]
            is_open = self._read() if ready else is_open
            if _is_left():
                self._end_all()
                sys.exit()
            if until_line and b"\n" in self._kept:
                return None
            if (now := time.monotonic()) - looked >= TICK_S:
                looked = now
                self._reap()
                if self._status is not None:
                    self._finish_reading()
                    return None
                if reason := self._over(now - started):
                    self._finish_reading()
                    return reason

    def _over(self, seconds: float) -> str | None:
        """The limit that its processes use more of together."""
        running, limits = watch.owned(), self._limits
        used = {
            "time": (seconds, limits["seconds"]),
            "cpu": (self._cpu + sum(one.cpu_seconds for one in running), limits["cpu_seconds"]),
            "processes": (sum(one.threads for one in running), limits["processes"]),
            "memory": (self._memory(running), limits["memory_bytes"]),
            "output": (self._printed, LINE if self._talks else MOST_PRINTED),
            "files": (_files(limits["file_systems"]), limits["files"]),
        }
        return next((name for name, (now, most) in used.items() if now > most), None)

    def _memory(self, running: Sequence[watch.Process]) -> int:
        """Of its processes and, in a box with a network of its own, of its sockets."""
        sockets = watch.socket_bytes() if self._limits["isolated"] else 0
        return sockets + sum(watch.memory_bytes(one.pid) for one in running)

    def _read(self) -> bool:
        """Whether there may be more."""
        piece = os.read(self._out, 1 << 16)
        self._printed += len(piece)
        self._kept += piece[: max(self._most - len(self._kept), 0)]
        return bool(piece)

    def _finish_reading(self) -> None:
        """End all that is left, so that nothing holds the pipe open, and read what is in it."""
        self._end_all()
        while self._read():
            pass

    def _end_all(self) -> None:
        self._is_over = True
        watch.end_all(self._pid)
        self._reap(all_end=True)

    def _reap(self, *, all_end: bool = False) -> None:
        for pid, status, cpu in watch.reap(all_end=all_end):
            self._cpu += cpu
            if pid == self._pid:
                self._status = status


def _is_left() -> bool:
    """Whether the program outside has closed the input."""
    poll = select.poll()
    poll.register(0, 0)
    return bool(poll.poll(0))


def _files(file_systems: Sequence[str]) -> int:
    stats = map(os.statvfs, file_systems)
    return sum(each.f_files - each.f_ffree for each in stats)


def _become(argv: Sequence[str], limits: Mapping[str, Any], given: int, printed: int, talks: bool) -> None:
    """In the child: set the limits and run the program; never returns."""
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        streams = (given, printed, nothing) if talks else (nothing, printed, printed)
        for place, source in enumerate(streams):
            os.dup2(source, place)
        for name in ("cpu", "as", "fsize", "nproc", "nofile", "core"):
            _limit(name, limits["each"].get(name))
        os.execvp(argv[0], list(argv))
    except BaseException as error:
        reason = "command not found" if isinstance(error, FileNotFoundError) else str(error)
        os.write(2, f"{argv[0] if argv else 'no command'}: {reason}\n".encode("utf-8", "replace"))
    os._exit(127)


def _limit(name: str, value: int | None) -> None:
    if value is not None:
        number = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has no limit on address space
            resource.setrlimit(number, (value, value))
