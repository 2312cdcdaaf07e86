"""The whole system: run-api, trainer and environment as processes, until the policy does better."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("atroposlib", reason="needs the extra atropos")

from afterwit_atropos.demo import run
from afterwit_atropos.environment.metrics import LINES
from afterwit_atropos.group import Profile

pytestmark = [pytest.mark.slow, pytest.mark.atropos]
STEPS = {Profile.TOPK: 16, Profile.SAMPLED: 16}


@pytest.mark.parametrize("profile", list(Profile))
def test_a_policy_learns_house_rules_over_a_real_server(profile: Profile, tmp_path: Path) -> None:
    points = run(tmp_path, steps=STEPS[profile], profile=profile, seed=0, held_out=50)
    assert points[0].version == 0
    assert points[-1].version == STEPS[profile]
    assert points[-1].pass_rate >= points[0].pass_rate + 0.2
    lines = [json.loads(line) for line in (tmp_path / "metrics" / LINES).read_text().splitlines()]
    assert {"train/mean_reward", "opd/hint_rate", "eval/pass_rate"} <= {
        name for line in lines for name in line
    }
