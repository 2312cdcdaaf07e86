"""Processes that start with torch and the store imported: one server forks them all."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from multiprocessing import forkserver, get_context, resource_tracker, util
from unittest.mock import patch

DEAREST = "tests.learning.stage.learning"
"""Imports torch: seconds."""
PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload([DEAREST, "tests.store.worker", "afterwit.store.postgresql"])


def fork_server() -> None:
    """Start the server as a fork of this process, before any test has run, if torch is imported here anyway.

    Else it starts in an interpreter of its own when it is first needed.
    """
    if DEAREST in sys.modules:
        resource_tracker.ensure_running()
        with patch.object(util, "spawnv_passfds", _forked):
            forkserver.ensure_running()


def _forked(path: bytes, arguments: Sequence[str], fds: Sequence[int]) -> int:
    """Like `spawnv_passfds`, but without a new interpreter: the last argument is the program."""
    if child := os.fork():
        return child
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in {int(name) for name in os.listdir("/dev/fd")} - {0, 1, 2, *fds}:
            os.dup2(nowhere, fd)  # objects here still write to its number, so that no other may get it
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # as in a new interpreter
        exec(arguments[-1])
    finally:
        os._exit(0)
