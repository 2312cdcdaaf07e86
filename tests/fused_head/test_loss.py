"""Slopes, rows that nothing reads, frozen parts, half precision, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from afterwit.fused_head.head import HeadGradients
from afterwit.fused_head.loss import Reference, ScoringInput, collect_rows, fused_loss, targets
from afterwit.objective.sample import denominators
from afterwit.objective.settings import OBJECTIVES, ObjectiveSettings

from .batches import Outcome, Pass, cast, gradient_buffers, parts_of, random_pass, with_parts

EVERYTHING = ObjectiveSettings(entropy_coef=0.1, beta=0.3)


def a_pass(settings: ObjectiveSettings = EVERYTHING, **more: object) -> Pass:
    usual = {
        "lengths": [4, 1, 6],
        "hints": [2, 1, 0],
        "taus": [0.6, 1.0, 1.3],
        "vocabulary": 150,
        "drift": 0.1,
    }
    return random_pass(3, settings, **(usual | more))


@pytest.mark.parametrize(
    ("objective", "tail_bucket", "soft_cap"),
    [
        (name, tail_bucket, soft_cap)
        for name, objective in OBJECTIVES.items()
        for tail_bucket in ((False, True) if "topk_opd" in objective.terms.values() else (False,))
        for soft_cap in (None, 3.0)
    ],
)
def test_the_gradient_equals_the_finite_difference_of_the_loss(
    objective: str, tail_bucket: bool, soft_cap: float | None
) -> None:
    made = a_pass(
        replace(EVERYTHING, objective=objective, tail_bucket=tail_bucket),
        bias=True,
        soft_cap=soft_cap,
    )
    gradients = made.fused().gradients
    found = {"states": torch.cat(made.states)} | parts_of(made.head)
    head = made.head
    generator, step = torch.Generator().manual_seed(0), 1e-6
    for name, values in found.items():
        direction = torch.randn(values.shape, generator=generator, dtype=torch.float64)
        losses = []
        for sign in (1, -1):
            moved = values + sign * step * direction
            if name == "states":
                made.states = list(moved.split([len(s.ids_T) for s in made.samples]))
            else:
                made.head = with_parts(head, parts_of(head) | {name: moved})
            losses.append(made.fused().loss)
            made.states = list(found["states"].split([len(s.ids_T) for s in made.samples]))
            made.head = head
        slope = (losses[0] - losses[1]) / (2 * step)
        assert (gradients[name] * direction).sum().item() == pytest.approx(slope, abs=1e-8, rel=1e-7)


def test_rows_that_no_term_reads_are_never_looked_at() -> None:
    made = a_pass()
    clean = made.fused()
    for states in (made.states, made.base):
        for sample, states_TD in zip(made.samples, states, strict=True):
            states_TD[~sample.mask_T] = torch.nan
    assert made.fused().apart(clean) == 0
    assert not clean.gradients["states"][~torch.cat([sample.mask_T for sample in made.samples])].any()


def test_gradients_are_added_to_what_is_there_already() -> None:
    made = a_pass()
    rows = collect_rows(made.samples, made.targets, made.over, made.settings)
    gradients = gradient_buffers(made.head)
    reference = Reference(head=made.frozen, states_ND=torch.cat(made.base))
    for _ in range(3):
        fused_loss(made.head, torch.cat(made.states), rows, made.settings, gradients, reference=reference)
    once = made.fused().gradients["weight_VD"]
    torch.testing.assert_close(gradients.weight_VD, 3 * once, rtol=1e-13, atol=1e-13)


def test_a_frozen_head_still_gives_the_gradient_of_the_states() -> None:
    made = a_pass(bias=True)
    rows = collect_rows(made.samples, made.targets, made.over, made.settings)
    reference = Reference(head=made.frozen, states_ND=torch.cat(made.base))
    found = fused_loss(
        made.head, torch.cat(made.states), rows, made.settings, HeadGradients(), reference=reference
    )
    assert torch.equal(found.grad_states_ND, made.fused().gradients["states"])


def test_the_sampled_ids_log_probs_are_those_of_the_rows_that_train() -> None:
    made = a_pass(drift=0.0)
    found = made.fused_targets()
    rows = collect_rows(made.samples, found, made.over, made.settings)
    reference = Reference(head=made.frozen, states_ND=torch.cat(made.base))
    learned = fused_loss(
        made.head, torch.cat(made.states), rows, made.settings, HeadGradients(), reference=reference, chunk=2
    )
    old = torch.cat([target.tokens.old_N[s.mask_T] for s, target in zip(made.samples, found, strict=True)])
    torch.testing.assert_close(learned.now_N, old, rtol=0, atol=1e-12)


@pytest.mark.parametrize("vocabulary", [150, 20_000])
def test_of_half_precision_everything_but_the_input_is_single(vocabulary: int) -> None:
    """Against fp64 of the same rounded numbers; only the states' gradient is rounded again."""
    made = cast(a_pass(vocabulary=vocabulary), torch.float32)

    def halved(dtype: torch.dtype) -> Outcome:
        """Heads and states of half precision, then taken as `dtype`."""
        parts = {
            name: cast(getattr(made, name), torch.bfloat16) for name in ("head", "frozen", "states", "base")
        }
        wide = made if dtype is torch.bfloat16 else cast(made, dtype)
        return replace(wide, **{name: cast(part, dtype) for name, part in parts.items()}).fused()

    half, exact = halved(torch.bfloat16), halved(torch.float64)
    assert half.loss == pytest.approx(exact.loss, rel=5e-6)
    assert half.terms == pytest.approx(exact.terms, rel=5e-6)
    for name in parts_of(made.head):
        assert half.gradients[name].dtype is torch.float32
        torch.testing.assert_close(half.gradients[name].double(), exact.gradients[name], rtol=0, atol=5e-6)
    assert half.gradients["states"].dtype is torch.bfloat16
    torch.testing.assert_close(
        half.gradients["states"].double(), exact.gradients["states"], rtol=5e-3, atol=1e-5
    )


def test_extreme_logits_stay_finite() -> None:
    made = a_pass(vocabulary=300, drift=0.0)
    made.states = [x.sign() * 1e4 for x in made.states]
    outcome = made.fused()
    assert torch.isfinite(torch.tensor([outcome.loss, *outcome.terms.values()])).all()
    assert all(torch.isfinite(gradient).all() for gradient in outcome.gradients.values())


def test_misalignment_is_refused() -> None:
    made = a_pass(drift=0.0)
    states, sample = torch.cat(made.states), made.samples[0]
    rows = collect_rows(made.samples, made.fused_targets(), made.over, made.settings)
    with pytest.raises(ValueError, match=r"beta is 0.3, but the reference's states are missing"):
        fused_loss(made.head, states, rows, made.settings, HeadGradients())
    short = Reference(head=made.frozen, states_ND=torch.cat(made.base)[1:])
    with pytest.raises(ValueError, match="11 states but 10 of the reference"):
        fused_loss(made.head, states, rows, made.settings, HeadGradients(), reference=short)
    with pytest.raises(ValueError, match="4 ids but 3 states"):
        ScoringInput(sample=sample, states_TD=states[:3])
    entry = ScoringInput(sample=sample, states_TD=states[:4])
    with pytest.raises(ValueError, match="2 hints but 0 teachers"):
        targets(made.head, [entry], made.frozen, made.settings)
    taught = replace(entry, teachers=(states[:4], states[:4]))
    with pytest.raises(ValueError, match="hints, but no teacher's head"):
        targets(made.head, [taught], None, made.settings)
    none = denominators([made.samples[2]], replace(made.settings, objective="topk_opd"))
    with pytest.raises(ValueError, match="carries opd, but its denominator is 0"):
        collect_rows([sample], made.fused_targets()[:1], none, replace(made.settings, objective="topk_opd"))
    with pytest.raises(ValueError, match="150 rows of the head but a bias of 2"):
        replace(made.head, bias_V=torch.zeros(2))
