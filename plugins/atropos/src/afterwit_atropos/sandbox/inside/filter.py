"""System calls that no command in a box needs: memory that no limit sees, mounts, other kernels' interfaces,
other machines by ways outside the network, and control of process 1.

They fail with EPERM. A call in another instruction set's numbering ends the process: the numbers
would be wrong.
"""

from __future__ import annotations

import ctypes
import errno
import platform
from typing import NamedTuple

_SAME = (425, 428, 429, 430, 431, 432, 433, 442, 447)
"""io_uring_setup, open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr,
memfd_secret."""
_CLONE3 = 435
"""Its flags cannot be seen. It fails with ENOSYS: then libraries take `clone`."""


class Calls(NamedTuple):
    """One machine's numbers."""

    audit: int
    denied: tuple[int, ...]
    """memfd_create, shmget, semget, msgget, vmsplice, userfaultfd, bpf, perf_event_open, add_key,
    request_key, keyctl, unshare, setns, mount, and what is the same everywhere."""
    of_another: tuple[int, ...]
    """prlimit64, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr: their first argument
    is a process, 0 for oneself."""
    of_others: tuple[tuple[int, int], ...]
    """setpriority, ioprio_set, each with what its first argument must be so that the second is a process."""
    clone: int
    sockets: tuple[int, int]
    """socket, socketpair."""
    mmap: int


MACHINES = {
    "x86_64": Calls(
        audit=0xC000003E,
        denied=(319, 29, 64, 68, 278, 323, 321, 298, 248, 249, 250, 272, 308, 165, *_SAME),
        of_another=(302, 142, 144, 203, 314),
        of_others=((141, 0), (251, 1)),
        clone=56,
        sockets=(41, 53),
        mmap=9,
    ),
    "aarch64": Calls(
        audit=0xC00000B7,
        denied=(279, 194, 190, 186, 75, 282, 280, 241, 217, 218, 219, 97, 268, 40, *_SAME),
        of_another=(261, 118, 119, 122, 274),
        of_others=((140, 0), (30, 1)),
        clone=220,
        sockets=(198, 199),
        mmap=222,
    ),
}

NEW_NAMESPACES = 0x7E020000
"""Flags of `clone`."""
FAMILIES = (1, 2, 10, 16)
"""Of sockets: unix, both of the internet, and netlink, by which programs ask for the box's own devices.
Others, such as that of virtual machines' hosts, do not end at the box's network."""
SHARED, ANONYMOUS = 0x01, 0x20
"""Flags of `mmap`. Together they make memory that stays when all but one page is unmapped: no process seems
to hold it."""
_X32 = 0x40000000
"""Numbers from here on are those of x86_64's second numbering."""
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_KILL, _ALLOW, _ERROR = 0x80000000, 0x7FFF0000, 0x00050000
_NO_NEW_PRIVILEGES, _SECCOMP, _MODE_FILTER = 38, 22, 2
DUMPABLE, SUBREAPER, DEATH_SIGNAL = 4, 36, 1
"""Options of `prctl`: whether other processes read this one's memory, files and environment; whether it
becomes the parent of descendants whose parent ended; the signal that it gets when its parent ends."""
Instruction = tuple[int, int, int, int]
"""A code, the number of instructions to skip if it holds and if not, and a value."""


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("yes", ctypes.c_ubyte),
        ("no", ctypes.c_ubyte),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(_Instruction)))


def deny_calls() -> None:
    """Deny them to this process and all that it will start. OSError if the kernel lacks such filters."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise OSError(f"no filter of system calls for {machine}, only for {' and '.join(MACHINES)}")
    steps = _program(MACHINES[machine])
    program = _Program(len(steps), (_Instruction * len(steps))(*(_Instruction(*step) for step in steps)))
    prctl(_NO_NEW_PRIVILEGES, 1)
    prctl(_SECCOMP, _MODE_FILTER, ctypes.byref(program))


def _program(calls: Calls) -> list[Instruction]:
    """Classic BPF over `seccomp_data`: the call's number is at byte 0, the machine at byte 4, the arguments
    from byte 16 on, 8 bytes each with the low half first."""
    deny, allow = (_RETURN, 0, 0, _ERROR | errno.EPERM), (_RETURN, 0, 0, _ALLOW)
    first, second, fourth = ((_LOAD, 0, 0, 16 + 8 * place) for place in (0, 1, 3))
    steps: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, calls.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for number in calls.denied:
        steps += _on(number, deny)
    steps += _on(_CLONE3, (_RETURN, 0, 0, _ERROR | errno.ENOSYS))
    steps += _on(calls.clone, first, (_ANY_BIT, 0, 1, NEW_NAMESPACES), deny, allow)
    for number in calls.sockets:
        known = [(_EQUAL, len(FAMILIES) - place, 0, family) for place, family in enumerate(FAMILIES)]
        steps += _on(number, first, *known, deny, allow)
    both = SHARED | ANONYMOUS
    steps += _on(calls.mmap, fourth, (_AND, 0, 0, both), (_EQUAL, 0, 1, both), deny, allow)
    for number in calls.of_another:
        steps += _on(number, first, (_EQUAL, 1, 0, 0), deny, allow)
    for number, process in calls.of_others:
        steps += _on(number, first, (_EQUAL, 1, 0, process), deny, second, (_EQUAL, 1, 0, 0), deny, allow)
    return [*steps, allow]


def _on(number: int, *steps: Instruction) -> list[Instruction]:
    """Instructions for one call alone."""
    return [(_EQUAL, 0, len(steps), number), *steps]


def prctl(option: int, *values: object) -> None:
    """OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in values]
    rest = [ctypes.c_ulong(0)] * (4 - len(first))
    if libc.prctl(ctypes.c_int(option), *first, *rest) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {errno.errorcode.get(number, number)}")
