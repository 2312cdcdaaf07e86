"""Processes that start with torch and the store imported: one server forks them all."""

from multiprocessing import get_context

PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["tests.learning.stage.learning", "tests.store.worker", "afterwit.store.postgresql"]
)
