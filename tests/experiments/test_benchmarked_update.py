"""The benchmark of an update runs, and reports its speed and that it is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.asked import SHAPES, Asked, Scale
from benchmarks.update import Bench

TINY = Scale(shape=replace(SHAPES["tiny"][0], vocabulary=512), tokens=512)


def test_our_update_and_the_plain_loops_take_a_step_of_one_size(tmp_path: Path) -> None:
    bench = Bench.set_up(Asked(), TINY, tmp_path)
    before = {name: tensor.detach().clone() for name, tensor in bench.policy.masters.named.items()}
    bench.ours()
    (rate,) = {group["lr"] for group in bench.policy.optimizer.param_groups}
    moved = max((tensor - before[name]).abs().max() for name, tensor in bench.policy.masters.named.items())
    for loop in bench.loops.values():
        assert {group["lr"] for group in loop.optimizer.param_groups} == {rate}
    torch.testing.assert_close(float(moved), rate, rtol=0.05, atol=0.0)
