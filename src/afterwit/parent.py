"""A process that ends with the one that started it.

As a program, `python parent.py PARENT COMMAND ...` becomes the command, which ends with the process PARENT.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that the kernel sends to this process when its parent dies."""


def end_with(parent: int) -> None:
    """On Linux, have the kernel send SIGTERM when `parent` dies. Raises SystemExit if it is dead already.

    Elsewhere, ask `is_gone` from time to time.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if is_gone(parent):
        raise SystemExit(0)


def is_gone(parent: int) -> bool:
    """Whether this process has become another one's child."""
    return os.getppid() != parent


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except FileNotFoundError as error:
        remedy = "install it, in an environment of its own, and name it with its path in engine.command"
        raise SystemExit(f"{sys.argv[2]} cannot be started: {error.strerror}: {remedy}") from error
    except OSError as error:
        raise SystemExit(f"{sys.argv[2]} cannot be started: {error.strerror}") from error
