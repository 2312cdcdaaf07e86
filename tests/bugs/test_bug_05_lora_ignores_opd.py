"""A LoRA path that takes hinted samples and drops their distillation term, without a word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.learning.update import update
from afterwit.objective.settings import ObjectiveSettings
from tests.fakes.judged_samples import a_sample, store_judged
from tests.learning.stage.learning import Place
from tests.learning.updates import EXACT, Given, furthest, items_of, policy_of, quiet, weights

LORA = replace(EXACT, lora_rank=8, lora_alpha=16.0, lr=1e-2)


@pytest.mark.parametrize(
    ("objective", "head"),
    [
        ("topk_opd", "fused"),
        pytest.param("token_opd", "fused", marks=pytest.mark.slow),
        pytest.param("topk_distill", "fused", marks=pytest.mark.slow),
        pytest.param("combine", "fused", marks=pytest.mark.slow),
        pytest.param("combine", "plain", marks=pytest.mark.slow),
    ],
)
def test_an_adapter_learns_from_hints_alone(
    model: Path, renderer: Renderer, objective: str, head: str
) -> None:
    """Nothing else has a weight. The adapter's log-probs of the response become those of the hinted base."""
    chosen = ObjectiveSettings(
        objective=objective, w_rl=0.0, beta=0.0, hint_selection="shortest", k=200, logprob_diff_clip=0.0
    )
    items = items_of([a_sample(renderer, number) for number in range(3)], renderer, chosen)
    policy = policy_of(model, replace(LORA, loss_backend=head))
    before = weights(policy)
    given = Given(policy.trained.base, LORA)
    found = [update(policy, given, items, chosen, LORA, quiet)[0] for _ in range(30)]
    assert found[0]["opd_samples"] == 3
    assert furthest(before, weights(policy)) > 1e-2
    assert found[-1]["teacher_gap"] < 0.5 * found[0]["teacher_gap"]


def test_a_version_trained_under_lora_counts_its_hinted_turns(
    model: Path, renderer: Renderer, tmp_path: Path
) -> None:
    place = Place(home=tmp_path, base=model).but(lora_rank=8, stop_at_teacher=False)
    with place.store() as store:
        store_judged(store, [a_sample(renderer, number) for number in range(4)])
    place.drain()
    metrics = place.versions.all()[-1].metrics
    assert metrics["opd_samples"] == 4
    assert abs(metrics["opd"]) > 0
