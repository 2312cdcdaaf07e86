"""Runs a command, and ends it with every process that it started: `python guard.py COMMAND...`

It ends them when its standard input closes, which also happens when the process that holds the other end is
killed. A `k` on standard input kills at once. Their temporary files go with them. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): orphans among the descendants become children of this process."""
GRACE_S = 15.0
"""Seconds between SIGTERM and SIGKILL."""


def main(command: list[str]) -> int:
    """The exit status for a shell."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory(prefix="aw-") as folder:
        environment = os.environ | {"TMPDIR": folder}
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
        ended = os.pidfd_open(child.pid)
        ready, _, _ = select.select([sys.stdin, ended], [], [])
        if sys.stdin in ready and not os.read(0, 1):
            os.killpg(child.pid, signal.SIGTERM)
            _reap(time.monotonic() + GRACE_S)
        _kill_all()
    return 0


def _reap(until: float) -> None:
    """Collect children until there is none or the time is over."""
    while time.monotonic() < until:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(0.1)


def _kill_all() -> None:
    """Kill children until there is none: those of the killed become children of this process."""
    mine = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := mine.read_text().split():
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)
        _reap(time.monotonic() + 0.2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
