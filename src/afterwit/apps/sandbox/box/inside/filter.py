"""System calls that no command in a box needs: memory that no limit sees, mounts, other kernels' interfaces.

They fail with EPERM. A call in another instruction set's numbering ends the process: the numbers
would be wrong.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import signal
from collections.abc import Sequence

_SAME = (425, 428, 429, 430, 431, 432, 433, 442, 447)
"""io_uring_setup, open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr,
memfd_secret."""
DENIED: dict[str, tuple[int, tuple[int, ...]]] = {
    # memfd_create, shmget, userfaultfd, bpf, perf_event_open, add_key, request_key, keyctl, unshare, setns,
    # mount
    "x86_64": (0xC000003E, (319, 29, 323, 321, 298, 248, 249, 250, 272, 308, 165, *_SAME)),
    "aarch64": (0xC00000B7, (279, 194, 282, 280, 241, 217, 218, 219, 97, 268, 40, *_SAME)),
}
"""By machine: its audit number and the numbers of the calls."""
_X32 = 0x40000000
"""Numbers from here on are those of x86_64's second numbering."""
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_KILL, _ALLOW, _ERROR = 0x80000000, 0x7FFF0000, 0x00050000
_NO_NEW_PRIVILEGES, _SECCOMP, _MODE_FILTER, _DUMPABLE, _SUBREAPER, _DEATH_SIGNAL = 38, 22, 2, 4, 36, 1


class _Step(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("yes", ctypes.c_ubyte),
        ("no", ctypes.c_ubyte),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(_Step)))


def deny_calls() -> None:
    """Deny them to this process and all that it will start. OSError where the kernel has no such filter."""
    machine = platform.machine()
    if machine not in DENIED:
        raise OSError(f"no filter of system calls for {machine}, only for {' and '.join(DENIED)}")
    steps = _program(*DENIED[machine])
    program = _Program(len(steps), (_Step * len(steps))(*(_Step(*step) for step in steps)))
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _prctl(_SECCOMP, _MODE_FILTER, ctypes.byref(program))


def hide() -> None:
    """Let no other process read this one's memory, files or environment."""
    _prctl(_DUMPABLE, 0)


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    _prctl(_DEATH_SIGNAL, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ended."""
    _prctl(_SUBREAPER, 1)


def _program(audit: int, calls: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Classic BPF over `seccomp_data`: the call's number is at byte 0, the machine at byte 4."""
    return [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
        *((_EQUAL, len(calls) - place, 0, number) for place, number in enumerate(calls)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
    ]


def _prctl(option: int, *values: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    given = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in values]
    rest = [ctypes.c_ulong(0)] * (4 - len(given))
    if libc.prctl(ctypes.c_int(option), *given, *rest) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {errno.errorcode.get(number, number)}")
