"""The fused head against the plain one and, through an identity head, against the NumPy reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from afterwit.fused_head.head import Head
from afterwit.objective.evaluation import settings_named
from afterwit.objective.sample import Target
from afterwit.objective.settings import HINT_RULES, ObjectiveSettings
from afterwit.objective.terms import Kept, kept_advantages
from tests.objective import reference
from tests.objective.batches import SUBSETS, batches
from tests.objective.batches import settings as objective_settings
from tests.objective.test_reference import tail_ratio
from tests.products import some

from .batches import Outcome, Pass, cast, random_pass

SAME = budget(max_examples=20, derandomize=True)
"""Rounding has a tail: bounds on it hold for the same examples at every run."""
EVERYTHING = ObjectiveSettings(entropy_coef=0.1, beta=0.3)


@st.composite
def passes(draw: st.DrawFn, dtype: torch.dtype = torch.float64) -> Pass:
    count = draw(st.integers(1, 4))
    each = {"min_size": count, "max_size": count}
    equals = draw(st.booleans())
    # the last bit of a tangent depends on the number's place in a vector, so equal values would differ
    soft_cap = None if equals else draw(st.sampled_from((None, 2.0, 30.0)))
    return random_pass(
        draw(st.integers(0, 2**32 - 1)),
        settings_named(draw(objective_settings())),
        lengths=draw(st.lists(st.integers(1, 7), **each)),
        hints=draw(st.lists(st.integers(0, 3), **each)),
        taus=draw(st.lists(st.sampled_from((0.3, 0.6, 1.0, 1.5)), **each)),
        vocabulary=draw(st.sampled_from((2, 9, 130, 300, 640))),
        bias=draw(st.booleans()),
        soft_cap=soft_cap,
        whole_numbers=equals,
        drift=draw(st.sampled_from((0.0, 0.25))),
        dtype=dtype,
    )


def tolerance(made: Pass) -> float:
    """The tail's probability is a difference: where the kept ids hold nearly all, it has few digits."""
    exact = 1e-11 if made.settings.tail_bucket else 1e-12
    return exact + 1e-14 * made.tail_ratio()


@given(passes(), st.sampled_from((1, 2, 5, 256)))
def test_loss_terms_and_all_gradients_are_the_plain_ones(made: Pass, chunk: int) -> None:
    assert made.fused(chunk).apart(made.plainly()) < tolerance(made)


def taught(target: Target, settings: ObjectiveSettings) -> torch.Tensor:
    """The teacher's part of the target: a gap, an advantage, a log-prob."""
    targets = target.tokens
    if targets.kept is None:
        return targets.gap_N
    kept = targets.kept
    return kept.teacher_TS if kept.old_TS is None else kept_advantages(kept, settings)


def largest(targets: Sequence[Target], settings: ObjectiveSettings) -> float:
    """The largest log-prob or gap of log-probs, nats."""
    found = [target.tokens.old_N for target in targets]
    found += [taught(target, settings) for target in targets if target.hint_T is not None]
    return max((values.abs().max().item() for values in found if values.numel()), default=0.0)


@SAME
@given(passes(dtype=torch.float32), st.sampled_from((1, 256)))
def test_single_precision_agrees_to_5e_6(made: Pass, chunk: int) -> None:
    """Or to twice what fp32 costs the plain way, or in proportion where log-prob gaps are large.

    Above 16 nats one unit in the last place is over 1e-6.
    """
    made.settings = replace(made.settings, tail_bucket=False)
    made.targets = None
    made.targets = made.plain_targets()
    exact = cast(made, torch.float64)
    bound = 5e-6 * max(1.0, largest(made.targets, made.settings) / 16) + 1e-6 * made.tail_ratio()
    allowed = max(bound, 2 * made.plainly().apart(exact.plainly()))
    assert made.fused(chunk).apart(exact.plainly()) < allowed


@given(passes())
def test_targets_are_the_plain_ones(made: Pass) -> None:
    made.targets = None
    for fused, plain in zip(made.fused_targets(3), made.plain_targets(), strict=True):
        assert apart(fused.tokens.old_N, plain.tokens.old_N) < 1e-12
        assert apart(fused.tokens.correction_N, plain.tokens.correction_N) < 1e-12
        assert (fused.hint_T is None) == (plain.hint_T is None)
        if fused.hint_T is None or plain.hint_T is None:
            continue
        assert torch.equal(fused.hint_T, plain.hint_T)
        assert torch.equal(fused.overlap_T, plain.overlap_T)
        assert apart(fused.tokens.gap_N, plain.tokens.gap_N) < 1e-12
        assert_same_kept(fused.tokens.kept, plain.tokens.kept, made.settings)


def assert_same_kept(one: Kept | None, other: Kept | None, settings: ObjectiveSettings) -> None:
    """Bit for bit the same ids, and the same values but for rounding."""
    assert type(one) is type(other)
    if one is None or other is None:
        return
    assert torch.equal(one.ids_TK, other.ids_TK)
    assert torch.equal(one.valid_TK, other.valid_TK)
    if one.old_TS is None or other.old_TS is None:
        assert one.old_TS is other.old_TS
        # the log of a difference, which rounding moves by its error over it
        assert ((one.teacher_TS - other.teacher_TS).abs() * other.teacher_TS.exp()).max() < 1e-14
        return
    assert apart(kept_advantages(one, settings), kept_advantages(other, settings)) < 1e-11


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return ((one - other).abs() / other.abs().clamp(min=1)).max().item()


SUBSET_READERS = [
    pytest.param(
        objective, selection, subset, tail, marks=() if fast and number % 2 == tail else pytest.mark.slow
    )
    for objective, fast in (("hybrid", True), ("topk_opd", False))
    for number, (selection, subset) in enumerate(product(HINT_RULES, SUBSETS))
    for tail in (False, True)
]
"""Every rule with every subset is fast, with and without a tail in turns."""
OTHERS = [
    (objective, selection, "student", False)
    for objective in ("token_opd", "topk_distill", "combine")
    for selection in HINT_RULES
]


@pytest.mark.parametrize(
    ("objective", "selection", "subset", "tail_bucket"),
    some(2, [*SUBSET_READERS, *(pytest.param(*each) for each in OTHERS)]),
)
def test_every_cell_over_several_chunks(
    objective: str, selection: str, subset: str, tail_bucket: bool
) -> None:
    settings = replace(
        EVERYTHING, hint_selection=selection, subset=subset, tail_bucket=tail_bucket, objective=objective
    )
    made = random_pass(
        5, settings, lengths=[40, 1, 17], hints=[3, 1, 0], taus=[0.6, 1.0, 1.2], vocabulary=500, bias=True
    )
    plain = made.plainly()
    assert plain.loss != 0
    for chunk in (7, 64):
        assert made.fused(chunk).apart(plain) < 1e-12 + 1e-14 * made.tail_ratio()


@given(batches(), objective_settings())
def test_through_an_identity_head_it_is_the_reference_in_numpy(samples: list[dict], settings: dict) -> None:
    """Loss, terms and gradients with respect to logits, by an implementation that shares no line with it."""
    vocabulary = {made["logits_current"].shape[-1] for made in samples}
    for size in vocabulary:
        same = [made for made in samples if made["logits_current"].shape[-1] == size]
        loss, terms, gradients = reference.evaluate(same, settings)
        found = through_identity(same, settings_named(settings), size)
        exact = (1e-11 if settings["tail_bucket"] else 1e-12) + 1e-14 * tail_ratio(same, settings)
        near = {"abs": exact, "rel": exact}
        assert found.loss == pytest.approx(loss, **near)
        assert found.terms == pytest.approx(terms, **near)
        expected = np.concatenate(gradients)
        np.testing.assert_allclose(
            found.gradients["states"].numpy(),
            expected,
            atol=near["abs"] * max(1, abs(expected).max()),
            rtol=0,
        )


def through_identity(arrays: list[dict], settings: ObjectiveSettings, size: int) -> Outcome:
    """Logits as hidden states under a head that is the identity."""
    from afterwit.objective.evaluation import Arrays, samples_of

    def rows(name: str) -> list[torch.Tensor]:
        return [torch.as_tensor(made[name]) for made in arrays]

    samples, run = samples_of([Arrays(named) for named in arrays], settings, 0.0)
    identity = Head(weight_VD=torch.eye(size, dtype=torch.float64))
    made = Pass(
        head=identity,
        frozen=identity,
        samples=samples,
        states=[
            torch.as_tensor(a["logits_current"] if a.get("logits_old") is None else a["logits_old"])
            for a in arrays
        ],
        teachers=[
            tuple(torch.as_tensor(a["logits_teacher"])[list(hints)])
            for a, hints in zip(arrays, run, strict=True)
        ],
        base=rows("logits_base"),
        settings=settings,
    )
    made.targets = made.fused_targets(2)
    made.states = rows("logits_current")
    return made.fused(2)
