"""The teacher that follows: closed form, limits, and that it leaves the policy alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from afterwit.chat_format.render import Renderer
from afterwit.learning.passes import probe, response_logits, stream_states
from afterwit.learning.policy import Policy
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import update
from afterwit.objective.settings import ObjectiveSettings
from afterwit.weights.adapter import PREFIX, TENSORS
from tests.fakes.adapters import by_peft
from tests.learning.test_lm_head import ROWS
from tests.learning.test_policy import go_on, trainer_in
from tests.learning.test_update import batch
from tests.learning.updates import EXACT, Given, frozen, furthest, policy_of, quiet, read_only, weights
from tests.products import diagonal

OBJECTIVE = ObjectiveSettings(beta=0.0)
KINDS = pytest.mark.parametrize("rank", [0, 16], ids=["whole", "lora"])
WHOLE = pytest.mark.parametrize("rank", [0, pytest.param(16, marks=pytest.mark.slow)], ids=["whole", "lora"])
"""For properties that an adapter has because the mean has them."""


def following(rank: int, decay: float, **more: Any) -> LearnerSettings:
    settings = replace(EXACT, lora_rank=rank, teacher="ema", ema_decay=decay)
    return replace(settings, **more)


def walk(
    base: Path, renderer: Renderer, settings: LearnerSettings, updates: int
) -> tuple[Policy, list[dict]]:
    """The policy after some updates, and its weights at the start and after each."""
    policy, items = policy_of(base, settings), batch(renderer, OBJECTIVE)
    seen = [weights(policy)]
    for _ in range(updates):
        update(policy, Given(read_only(base), settings), items, OBJECTIVE, settings, quiet)
        seen.append(weights(policy))
    return policy, seen


@KINDS
def test_after_n_updates_it_is_the_geometric_sum_of_the_policies(
    rank: int, base: Path, renderer: Renderer
) -> None:
    """ema_n = d^n w_0 + (1 - d) sum over k of d^(n - k) w_k, with one term an update however many epochs."""
    decay, updates = 0.7, 4
    policy, seen = walk(base, renderer, following(rank, decay, epochs=2), updates)
    assert policy.ema is not None
    for name, mean in policy.ema.named.items():
        expected = decay**updates * seen[0][name]
        for update_number in range(1, updates + 1):
            expected = expected + (1 - decay) * decay ** (updates - update_number) * seen[update_number][name]
        torch.testing.assert_close(mean, expected, rtol=0, atol=1e-12)
    assert furthest(policy.ema.named, seen[-1]) > 1e-4


@WHOLE
def test_it_begins_at_the_base_and_with_a_decay_of_one_stays_there(
    rank: int, base: Path, renderer: Renderer
) -> None:
    policy, seen = walk(base, renderer, following(rank, 1.0), 2)
    assert policy.ema is not None
    assert furthest(policy.ema.named, seen[0]) == 0.0
    assert probe(policy.ema.model).logprobs == probe(frozen(base)).logprobs
    staying, _ = walk(base, renderer, following(rank, 1.0, teacher="base"), 2)
    assert furthest(weights(policy), weights(staying)) < 1e-9


@WHOLE
def test_with_a_decay_of_zero_it_is_the_live_policy(rank: int, base: Path, renderer: Renderer) -> None:
    policy, seen = walk(base, renderer, following(rank, 0.0), 3)
    assert policy.ema is not None
    assert furthest(policy.ema.named, seen[-1]) == 0.0
    live, _ = walk(base, renderer, following(rank, 0.0, teacher="live"), 3)
    assert furthest(weights(policy), weights(live)) < 1e-9


@WHOLE
@pytest.mark.parametrize("head", ["fused", pytest.param("plain", marks=pytest.mark.slow)])
def test_an_update_under_it_is_one_under_a_model_with_its_weights(
    rank: int, head: str, base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    settings, items = following(rank, 0.5, loss_backend=head), batch(renderer, OBJECTIVE)
    under_mean, _ = walk(base, renderer, settings, 2)
    under_model, _ = walk(base, renderer, settings, 2)
    teacher = loaded(under_model, rank, base, tmp_path)
    update(under_mean, Given(None, settings), items, OBJECTIVE, settings, quiet)
    update(under_model, Given(teacher), items, OBJECTIVE, replace(settings, teacher="base"), quiet)
    assert furthest(weights(under_mean), weights(under_model)) < 1e-9
    update(
        walked := walk(base, renderer, settings, 2)[0], Given(read_only(base)), items, OBJECTIVE, EXACT, quiet
    )
    assert furthest(weights(under_mean), weights(walked)) > 1e-6


def loaded(policy: Policy, rank: int, base: Path, folder: Path) -> PreTrainedModel:
    """The mean as a model that others wrote and read."""
    assert policy.ema is not None
    if rank == 0:
        policy.ema.model.save_pretrained(folder)
        return frozen(folder)
    policy.trained.write(folder, base)
    tensors = {PREFIX + name.replace(".default", ""): mean for name, mean in policy.ema.named.items()}
    save_file(tensors, folder / TENSORS)
    return by_peft(base, folder).get_base_model()


@pytest.mark.parametrize(("rank", "dtype"), diagonal({"whole": 0, "lora": 16}, ["float32", "bfloat16"]))
def test_scoring_under_it_leaves_the_policy_bit_for_bit_even_when_it_fails(
    rank: int, dtype: str, base: Path, renderer: Renderer
) -> None:
    policy, _ = walk(base, renderer, following(rank, 0.5, dtype=dtype), 2)
    assert policy.ema is not None
    before, moments = weights(policy), probe(policy.model)
    with torch.no_grad():
        own = torch.cat(response_logits(policy.model, ROWS))
        list(stream_states(policy.ema.model, ROWS, 1))
        handle = policy.ema.model.get_output_embeddings().register_forward_pre_hook(_fail)
        with pytest.raises(RuntimeError, match="in the middle"):
            response_logits(policy.ema.model, ROWS)
        handle.remove()
        assert torch.equal(torch.cat(response_logits(policy.model, ROWS)), own)
    assert probe(policy.model) == moments != probe(policy.ema.model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(policy).items())
    assert all(own.requires_grad for own in policy.masters.named.values())


def _fail(*_: object) -> None:
    raise RuntimeError("in the middle of a pass")


def test_under_bfloat16_the_mean_keeps_what_rounding_would_lose(base: Path, renderer: Renderer) -> None:
    policy, seen = walk(base, renderer, following(0, 0.5, dtype="bfloat16", lr=1e-6), 2)
    assert policy.ema is not None
    for name, mean in policy.ema.named.items():
        expected = 0.25 * seen[0][name] + 0.25 * seen[1][name] + 0.5 * seen[2][name]
        torch.testing.assert_close(mean, expected, rtol=1e-6, atol=1e-9)
        assert mean.dtype is torch.float32
        served = policy.ema.model.get_parameter(name)
        assert torch.equal(served, mean.bfloat16())


@WHOLE
def test_the_mean_is_kept_with_the_version_and_starts_again_if_it_is_missing(
    rank: int, base: Path, renderer: Renderer, tmp_path: Path
) -> None:
    way = {"lora_rank": rank, "ema_decay": 0.5}
    go_on(trainer_in(tmp_path, base, renderer, teacher="base", **way), renderer, range(1))
    joining = trainer_in(tmp_path, base, renderer, teacher="ema", **way)
    ema = joining.policy().ema
    assert ema is not None
    assert probe(ema.model) == joining.versions.get(0).probe
    go_on(joining, renderer, range(1, 2))
    again = trainer_in(tmp_path, base, renderer, teacher="ema", **way).policy().ema
    assert again is not None
    assert furthest(again.named, ema.named) == 0.0
    assert probe(again.model) != joining.versions.get(0).probe
