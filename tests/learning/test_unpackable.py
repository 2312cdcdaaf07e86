"""Models with windows, sinks or linear attention train one row at a time, as each row alone would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.chat_format.render import Renderer
from afterwit.learning.batch import Item
from afterwit.learning.passes import Row, response_logits
from afterwit.learning.policy import Policy
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import update
from afterwit.objective.settings import ObjectiveSettings
from afterwit.packing.attention import unsupported_reason
from tests.fakes.judged_samples import a_sample
from tests.fakes.unpackable import UNPACKABLE, tiny_unpackable
from tests.learning.updates import EXACT, Given, frozen, items_of, policy_of, quiet, weights
from tests.products import some

ROWS = (
    Row(prompt=tuple(range(3, 15)), response=tuple(range(20, 31))),
    Row(prompt=tuple(range(3, 9)), response=(7, 8, 9)),
    Row(prompt=(5,), response=tuple(range(40, 62))),
)
"""Longer than the window, and of three lengths."""
HINTS = ("Say it in one word.", "Read the file before you answer.")
SINGLE = replace(EXACT, dtype="float32")
ALONE = replace(SINGLE, micro_batch_tokens=1, loss_backend="plain")
"""Every row is a pass of its own, and the loss is differentiated by autograd alone."""
ROUNDING = 1e-4
"""In float32, which is what some of these models compute in whatever their weights are."""
TOGETHER = replace(SINGLE, micro_batch_tokens=4096)


@pytest.fixture(scope="module", params=some(2, UNPACKABLE))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_unpackable(tmp_path_factory.mktemp("unpackable"), name)


def slopes(model: PreTrainedModel, logprob: Tensor) -> dict[str, Tensor]:
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    found = torch.autograd.grad(logprob, list(named.values()), allow_unused=True)
    return {name: slope for name, slope in zip(named, found, strict=True) if slope is not None}


def logprob(logits_TV: Sequence[Tensor]) -> Tensor:
    """Of all responses, summed."""
    scored = [torch.log_softmax(logits, -1) for logits in logits_TV]
    pairs = zip(scored, ROWS, strict=True)
    return torch.stack([each[range(len(row.response)), row.response].sum() for each, row in pairs]).sum()


def test_rows_together_have_the_logits_and_gradients_of_plain_forward_passes(folder: Path, name: str) -> None:
    model = frozen(folder, torch.float32).requires_grad_(True)
    assert unsupported_reason(model) == f"it has layers of {UNPACKABLE[name][1]}"
    plain = [
        model(input_ids=torch.tensor([row.prompt + row.response])).logits[0, len(row.prompt) - 1 : -1]
        for row in ROWS
    ]
    together = response_logits(model, ROWS)
    for ours, theirs in zip(together, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=ROUNDING)
    of_together, of_plain = slopes(model, logprob(together)), slopes(model, logprob(plain))
    assert of_together.keys() == of_plain.keys()
    steepest = max(float(slope.abs().max()) for slope in of_plain.values())
    assert steepest > 1.0
    for key, slope in of_plain.items():
        torch.testing.assert_close(of_together[key], slope, rtol=0, atol=ROUNDING * steepest)


def updated(folder: Path, items: list[Item], how: LearnerSettings) -> tuple[Policy, dict[str, float]]:
    policy, base = policy_of(folder, how), Given(frozen(folder, torch.float32), how)
    return policy, update(policy, base, items, ObjectiveSettings(beta=0.1), how, quiet)[0]


def apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Share of the weights that differ by more than a hundredth of a step."""
    far = [((one[name] - other[name]).abs() > 0.01 * EXACT.lr).flatten() for name in one]
    return float(torch.cat(far).double().mean())


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_an_update_is_the_one_of_each_row_alone(folder: Path, renderer: Renderer, rank: int) -> None:
    """Hints, a reference KL, all weights or an adapter; fused and padded against plain and alone."""
    samples = [a_sample(renderer, 0, hints=HINTS), a_sample(renderer, 1, reward=1, tokens=9)]
    items = items_of(samples, renderer, ObjectiveSettings())
    before = weights(policy_of(folder, replace(TOGETHER, lora_rank=rank)))
    together, of_together = updated(folder, items, replace(TOGETHER, lora_rank=rank))
    alone, of_alone = updated(folder, items, replace(ALONE, lora_rank=rank))
    assert of_together == pytest.approx(of_alone, rel=1e-4, abs=1e-6)
    assert apart(weights(together), before) > 0.2
    # the optimiser divides a gradient that is only rounding by itself
    assert apart(weights(together), weights(alone)) < 1e-3
