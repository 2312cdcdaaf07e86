"""The resources that a command's processes use together, from /proc, and the end of all processes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
SEEN = os.path.isdir("/proc/self")
"""False on a machine without /proc, where only an unsafe box can be."""


class Process(NamedTuple):
    """One process; its CPU time holds that of the children it waited for."""

    pid: int
    parent: int
    threads: int
    cpu_seconds: float


def owned() -> list[Process]:
    """All but this process in a box of its own; the descendants of this process elsewhere."""
    everything = list(_processes())
    if os.getpid() == 1:
        return everything
    mine = found = {os.getpid()}
    while found:
        found = {one.pid for one in everything if one.parent in found}
        mine = mine | found
    return [one for one in everything if one.pid in mine]


HELD = ("RssAnon:", "RssShmem:", "HugetlbPages:", "VmPTE:")
SOCKET_BYTES = 2 * 212_992
"""The most that a socket other than TCP may hold, by the kernel's defaults."""


def memory_bytes(pid: int) -> int:
    """Anonymous and shared memory that a process holds; files are counted where they lie."""
    held = 0
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file,
    ):
        for line in file:
            if line.startswith(HELD):
                held += int(line.split()[1]) * 1024
    return held


def socket_bytes() -> int:
    """The most that all sockets of this process's network may hold."""
    held = 0
    for family in ("tcp", "tcp6"):
        queues = (line.split()[4].split(":") for line in _sockets(family))
        held += sum(int(sent, 16) + int(received, 16) for sent, received in queues)
    others = ("unix", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "netlink")
    return held + SOCKET_BYTES * sum(len(_sockets(family)) for family in others)


def _sockets(family: str) -> list[str]:
    """A line for each; none where the kernel has no such family."""
    with (
        contextlib.suppress(OSError),
        open(f"/proc/net/{family}", encoding="ascii", errors="replace") as file,
    ):
        return file.readlines()[1:]
    return []


def end_all(group: int) -> None:
    """Kill all owned processes. `group`: what is killed on a machine without /proc."""
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # at once: none can start another meanwhile
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    while left := owned():
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)


def reap(*, all_end: bool = False) -> Iterator[tuple[int, int, float]]:
    """Collect the processes that have ended: id, exit status (negative: a signal), CPU seconds.

    `all_end`: wait for those that run.
    """
    with contextlib.suppress(ChildProcessError):
        while (found := os.wait4(-1, 0 if all_end else os.WNOHANG))[0]:
            pid, status, used = found
            yield pid, os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def _processes() -> Iterator[Process]:
    for name in os.listdir("/proc") if SEEN else ():
        if name.isdecimal() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                values = file.read().rpartition(b")")[2].split()
                cpu = sum(map(int, values[11:15])) / TICKS
                if values[0] != b"Z":
                    yield Process(int(name), int(values[1]), int(values[17]), cpu)
