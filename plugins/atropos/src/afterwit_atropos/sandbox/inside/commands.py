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
from typing import Any, NamedTuple

TICK_S = 0.02
MOST_PRINTED = 64 << 20
"""Bytes; a command that prints more is ended."""
LINE = 1 << 20
"""Bytes of the longest answer of a program that answers lines."""
TICKS = os.sysconf("SC_CLK_TCK")
SEEN = os.path.isdir("/proc/self")
"""False on a machine without /proc, where only an unsafe box can be."""
HELD = ("RssAnon:", "RssShmem:", "HugetlbPages:", "VmPTE:")
SOCKET_BYTES = 2 * 212_992
"""The most that a socket other than TCP may hold, by the kernel's defaults."""


class Process(NamedTuple):
    """One process; its CPU time holds that of the children it waited for."""

    pid: int
    parent: int
    threads: int
    cpu_seconds: float


class Command:
    """A running command. `limits` are those of `Isolation.limits`.

    `talks`: it reads lines and answers each with one; its errors are dropped. Otherwise it reads nothing, and
    its output comes back when it ends.
    """

    def __init__(self, argv: Sequence[str], limits: Mapping[str, Any], *, talks: bool = False) -> None:
        self._limits, self._talks = limits, talks
        self._most = LINE if talks else limits["output_bytes"]
        self._status: int | None = None
        self._cpu = 0.0
        self._output = bytearray()
        self._printed = 0
        self._is_over = False
        reading, self._input = os.pipe()
        self._out, printed = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _become(argv, limits, reading, printed, talks)
        os.close(reading)
        os.close(printed)

    def finish(self) -> dict[str, Any]:
        """Wait for its end, or end it when it exceeds a limit."""
        reason = self._wait(until_line=False)
        text = bytes(self._output).decode("utf-8", "replace")
        cut = max(self._printed - len(self._output), 0)
        return {"status": self._status, "output": text, "cut_bytes": cut, "ended_for": reason}

    def ask(self, line: str) -> dict[str, Any]:
        """Send it a line. Returns its answer, or the reason why there is none."""
        self._output.clear()
        self._printed = 0
        reason = self._send(line.encode() + b"\n") or self._wait(until_line=True)
        answer, found, _ = bytes(self._output).partition(b"\n")
        if found and reason is None:
            return {"line": answer.decode("utf-8", "replace")}
        return {"ended_for": reason or "exit"}

    def end(self) -> None:
        """End it with everything that it started."""
        if not self._is_over:
            self._end_all()
        os.close(self._input)
        os.close(self._out)

    def _send(self, data: bytes) -> str | None:
        """The reason why it does not take a line; None if it took it."""
        until = time.monotonic() + self._limits["seconds"]
        try:
            while data and (left := until - time.monotonic()) > 0:
                if select.select([], [self._input], [], left)[1]:
                    data = data[os.write(self._input, data[: select.PIPE_BUF]) :]
        except BrokenPipeError:
            return "exit"
        return "time" if data else None

    def _wait(self, *, until_line: bool) -> str | None:
        """The limit that it exceeded; None if it ended, or answered, by itself."""
        started, looked, is_open = time.monotonic(), 0.0, True
        outside = select.poll()
        outside.register(0, 0)
        while True:
            ready = select.select([self._out] if is_open else [], [], [], TICK_S)[0]
            is_open = self._read() if ready else is_open
            if outside.poll(0):  # the program outside has closed the input
                self._end_all()
                sys.exit()
            if until_line and b"\n" in self._output:
                return None
            if (now := time.monotonic()) - looked >= TICK_S:
                looked = now
                self._reap()
                reason = self._over(now - started) if self._status is None else None
                if reason or self._status is not None:
                    self._end_all()  # so that nothing holds the pipe open
                    while self._read():
                        pass
                    return reason

    def _over(self, seconds: float) -> str | None:
        """The limit that its processes exceed together."""
        running, limits = _owned(), self._limits
        files = [os.statvfs(each) for each in limits["file_systems"]]
        # in a box, with a network of its own, sockets count as memory
        sockets = _socket_bytes() if limits["isolated"] else 0
        used = {
            "time": (seconds, limits["seconds"]),
            "cpu": (self._cpu + sum(one.cpu_seconds for one in running), limits["cpu_seconds"]),
            "processes": (sum(one.threads for one in running), limits["processes"]),
            "memory": (sockets + sum(_memory_bytes(one.pid) for one in running), limits["memory_bytes"]),
            "output": (self._printed, LINE if self._talks else MOST_PRINTED),
            "files": (sum(each.f_files - each.f_ffree for each in files), limits["files"]),
        }
        return next((name for name, (now, most) in used.items() if now > most), None)

    def _read(self) -> bool:
        """Whether there may be more."""
        part = os.read(self._out, 1 << 16)
        self._printed += len(part)
        self._output += part[: max(self._most - len(self._output), 0)]
        return bool(part)

    def _end_all(self) -> None:
        """Kill all owned processes, and wait for their ends."""
        self._is_over = True
        if os.getpid() == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # at once: none can start another meanwhile
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)  # all that is seen on a machine without /proc
            while left := _owned():
                for process in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(process.pid, signal.SIGKILL)
        self._reap(all_end=True)

    def _reap(self, *, all_end: bool = False) -> None:
        """Collect the processes that have ended. `all_end`: wait for those that run."""
        with contextlib.suppress(ChildProcessError):
            while (found := os.wait4(-1, 0 if all_end else os.WNOHANG))[0]:
                pid, status, used = found
                self._cpu += used.ru_utime + used.ru_stime
                if pid == self._pid:
                    self._status = os.waitstatus_to_exitcode(status)  # negative: a signal


def _become(argv: Sequence[str], limits: Mapping[str, Any], reading: int, printed: int, talks: bool) -> None:
    """In the child: set the limits and run the program; never returns."""
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        streams = (reading, printed, nothing) if talks else (nothing, printed, printed)
        for place, source in enumerate(streams):
            os.dup2(source, place)
        for name, value in limits["each"].items():
            if value is not None:
                kind = getattr(resource, f"RLIMIT_{name.upper()}")
                hard = resource.getrlimit(kind)[1]
                value = value if hard == resource.RLIM_INFINITY else min(value, hard)
                with contextlib.suppress(ValueError, OSError):  # macOS has no limit on address space
                    resource.setrlimit(kind, (value, value))
        os.execvp(argv[0], list(argv))
    except BaseException as error:
        reason = "command not found" if isinstance(error, FileNotFoundError) else str(error)
        os.write(2, f"{argv[0] if argv else 'no command'}: {reason}\n".encode("utf-8", "replace"))
    os._exit(127)


def _owned() -> list[Process]:
    """All but this process in a box of its own; the descendants of this process elsewhere."""
    everything = []
    for name in os.listdir("/proc") if SEEN else ():
        if name.isdecimal() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                values = file.read().rpartition(b")")[2].split()
                if values[0] != b"Z":
                    cpu = sum(map(int, values[11:15])) / TICKS
                    everything.append(Process(int(name), int(values[1]), int(values[17]), cpu))
    if os.getpid() == 1:
        return everything
    mine = found = {os.getpid()}
    while found:
        found = {one.pid for one in everything if one.parent in found}
        mine = mine | found
    return [one for one in everything if one.pid in mine]


def _memory_bytes(pid: int) -> int:
    """Anonymous and shared memory that a process holds; files are counted where they lie."""
    return sum(int(line.split()[1]) * 1024 for line in _lines(f"/proc/{pid}/status") if line.startswith(HELD))


def _socket_bytes() -> int:
    """The most that all sockets of this process's network may hold."""
    held = 0
    for family in ("tcp", "tcp6"):
        queues = (line.split()[4].split(":") for line in _lines(f"/proc/net/{family}")[1:])
        held += sum(int(sent, 16) + int(received, 16) for sent, received in queues)
    others = ("unix", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "netlink")
    return held + SOCKET_BYTES * sum(len(_lines(f"/proc/net/{family}")[1:]) for family in others)


def _lines(path: str) -> list[str]:
    """None where the process, or the kernel's family of sockets, is not there."""
    lines: list[str] = []
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        lines += file
    return lines
