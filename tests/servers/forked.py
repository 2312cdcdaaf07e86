"""Runs a server's module, forking where it would spawn: `python -P forked.py MODULE FLAGS...`

A spawned process imports the whole server again, a forked one has it: a start then takes a third of the CPU
time. Servers spawn because a process that holds a GPU cannot fork; here none does.
"""

from __future__ import annotations

import multiprocessing
import runpy
import sys

if __name__ == "__main__":
    forking = multiprocessing.get_context("fork")
    multiprocessing.set_start_method("fork")
    multiprocessing.set_start_method = lambda *_, **__: None
    multiprocessing.get_context = lambda *_, **__: forking  # type: ignore[assignment, return-value]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
