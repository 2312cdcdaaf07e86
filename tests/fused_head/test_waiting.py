"""Nothing between states and gradient asks the device for a value: a GPU would have to finish its work first.

Shown on the meta device, whose tensors have none, and whose tensors mix with no others.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from afterwit.fused_head.head import Head, HeadGradients, score_states
from afterwit.fused_head.head import on_tensor_cores as tensor_cores
from afterwit.fused_head.loss import Reference, ScoringInput, collect_rows, fused_loss, targets
from afterwit.objective.settings import HINT_RULES, ObjectiveSettings
from tests.products import diagonal

from .batches import Pass, cast, parts_of, random_pass

META = torch.device("meta")
EVERYTHING = ObjectiveSettings(entropy_coef=0.1, beta=0.3)


def away(value: Any) -> Any:
    """The same tensors on the meta device, wherever they are in it; nothing is checked again."""
    if isinstance(value, Tensor):
        return value.to(META)
    if isinstance(value, list | tuple):
        return type(value)(away(each) for each in value)
    if isinstance(value, dict):
        return {name: away(each) for name, each in value.items()}
    if not is_dataclass(value) or isinstance(value, ObjectiveSettings):
        return value
    moved = object.__new__(type(value))
    for field in fields(value):
        object.__setattr__(moved, field.name, away(getattr(value, field.name)))
    return moved


def a_pass(settings: ObjectiveSettings) -> Pass:
    made = random_pass(
        3,
        settings,
        lengths=[4, 1, 6],
        hints=[2, 1, 0],
        taus=[0.6, 1.0, 1.3],
        vocabulary=2000,
        bias=True,
        soft_cap=5.0,
    )
    return cast(made, torch.float32)


def on_tensor_cores(head: Head) -> Head:
    return replace(away(cast(head, torch.bfloat16)), product=tensor_cores)


def gradients(head: Head) -> HeadGradients:
    return HeadGradients(
        **{name: torch.empty(part.shape, device=META) for name, part in parts_of(head).items()}
    )


@pytest.mark.parametrize(
    ("objective", "selection"),
    diagonal(["hybrid", "topk_opd", "token_opd", "topk_distill", "combine"], list(HINT_RULES)),
)
def test_targets_are_made_without_waiting(objective: str, selection: str) -> None:
    made = a_pass(replace(EVERYTHING, objective=objective, hint_selection=selection, tail_bucket=True))
    inputs = [
        ScoringInput(sample=away(sample), states_TD=away(states_TD), teachers=away(teachers))
        for sample, states_TD, teachers in zip(made.samples, made.states, made.teachers, strict=True)
    ]
    found = targets(on_tensor_cores(made.head), inputs, on_tensor_cores(made.frozen), made.settings, chunk=3)
    assert {target.tokens.old_N.device for target in found} == {META}


@pytest.mark.parametrize("objective", ["hybrid", "topk_opd", "token_opd", "rl", "topk_distill", "combine"])
def test_loss_and_gradient_are_found_without_waiting(objective: str) -> None:
    made = a_pass(replace(EVERYTHING, objective=objective, tail_bucket=True))
    rows = collect_rows(made.samples, made.plain_targets(), made.over, made.settings)
    head = on_tensor_cores(made.head)
    reference = Reference(head=on_tensor_cores(made.frozen), states_ND=away(torch.cat(made.base).bfloat16()))
    states_ND = away(torch.cat(made.states).bfloat16())
    found = fused_loss(
        head, states_ND, away(rows), made.settings, gradients(head), reference=reference, chunk=3
    )
    assert found.loss.device == found.grad_states_ND.device == META


def test_rows_are_scored_without_waiting() -> None:
    made = a_pass(EVERYTHING)
    states_ND = away(torch.cat(made.states).bfloat16())
    tau_N, ids_N2 = torch.ones(11, device=META), torch.zeros(11, 2, dtype=torch.int64, device=META)
    found = score_states(on_tensor_cores(made.head), states_ND, tau_N, ids_N2, k=20, chunk=4)
    assert found.top_ids_NK.shape == (11, 20)


def test_the_meta_device_would_show_a_wait() -> None:
    for wait in (Tensor.item, Tensor.tolist, Tensor.nonzero, bool, lambda values: values[values > 0]):
        with pytest.raises((RuntimeError, NotImplementedError)):
            wait(torch.ones(1, device=META))
