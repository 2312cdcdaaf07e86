"""A consumer in a process of its own that is killed at a set moment of an update."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch

from afterwit.learning.passes import Phase
from plugins.atropos.tests.consumer.test_stage import Bench

RESTS = 6000


def consume_and_die(root: Path, base: Path, url: str, phase: Phase, time: int) -> None:
    """SIGKILL the `time`-th time an update comes to `phase`."""
    torch.set_num_threads(1)
    seen = 0

    def watch(reached: Phase) -> None:
        nonlocal seen
        seen += reached is phase
        if seen == time:
            os.kill(os.getpid(), signal.SIGKILL)

    Bench(root, base, url, watch=watch).run(None, rests=RESTS)
