"""Complaints and thanks by log-probs: the line through them, borders, and how far they hold."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.judging.polarity import (
    ASKED,
    REPLIES,
    RESULTS,
    STRENGTHS,
    UNREAD,
    LogProbs,
    Subject,
    borders,
    form,
    ridge,
)
from afterwit.progress import wilson_interval

KINDS = ("complaint", "thanks", "neutral")
PARTS = REPLIES.parts
WIDTH = sum(PARTS)


def a_reply(kind: str, by: float, random: Random) -> LogProbs:
    """Noise of a nat, and `by` more nats for an example and an opening of the kind."""
    found = [random.gauss(-20.0, 1.0) for _ in range(WIDTH)]
    for at in (KINDS.index(kind), PARTS[0] + KINDS.index(kind)):
        found[at] += by
    return found


def drawn(seed: int, *, apart: float) -> dict[str, list[LogProbs]]:
    """60 complaints, 20 thanks and 50 others."""
    random = Random(seed)
    return {
        kind: [a_reply(kind, apart, random) for _ in range(many)]
        for kind, many in zip(KINDS, (60, 20, 50), strict=True)
    }


def test_kinds_that_lie_apart_are_told_apart_in_replies_never_seen():
    found = borders(drawn(0, apart=9), PARTS)
    assert (found.complaint.found, found.complaint.of) == (60, 60)
    assert (found.thanks.found, found.thanks.of) == (20, 20)
    for kind, value in zip(KINDS, (-1, 1, 0), strict=True):
        says = [found.read(reply).value for reply in drawn(1, apart=9)[kind]]
        assert says.count(value) >= 0.9 * len(says)


def test_a_model_that_tells_nothing_apart_is_not_believed():
    found = [borders(drawn(seed, apart=0), PARTS) for seed in range(3)]
    assert not any(each.complaint.holds or each.thanks.holds for each in found)
    assert found[0].read(a_reply("complaint", 9, Random(0))) == UNREAD


def test_thanks_that_lie_among_the_others_are_not_told_from_them():
    kinds = drawn(0, apart=9)
    mixed = kinds | {"thanks": drawn(2, apart=9)["neutral"][:20]}
    found = borders(mixed, PARTS)
    assert found.complaint.holds
    assert not found.thanks.holds
    assert {found.read(reply).value for reply in mixed["thanks"]} == {0}


def test_few_others_are_taken_for_complaints_even_where_kinds_overlap():
    found = borders(drawn(0, apart=2), PARTS)
    unseen = drawn(1, apart=2)
    others = [found.complaint.height(reply) > 0 for kind in KINDS[1:] for reply in unseen[kind]]
    assert 0 < sum(others) < 0.15 * len(others)
    assert 20 < found.complaint.found < 60


def test_a_reply_close_to_the_border_is_a_hint_without_a_reward():
    found = borders(drawn(0, apart=2), PARTS)
    near = replace(found.complaint, at=found.complaint.at + 1)
    shifted = replace(found, complaint=replace(near, near=1.0 + found.complaint.near))
    read = [(found.read(reply), shifted.read(reply)) for reply in drawn(1, apart=2)["complaint"]]
    assert found.complaint.near > 0
    assert all(before.hint == after.hint for before, after in read)
    assert {before.value for before, _ in read if before.hint} == {-1, 0}
    assert {before.value for before, after in read if before.hint and after.value != -1} >= {-1}
    assert all(reading.hint or reading.value != -1 for pair in read for reading in pair)


NATS = st.floats(-50, 50)
A_BORDER = borders(drawn(0, apart=3), PARTS).complaint


@given(st.lists(NATS, min_size=WIDTH, max_size=WIDTH), NATS, NATS)
def test_a_reply_that_is_longer_or_rarer_everywhere_reads_the_same(reply, longer, rarer):
    many = PARTS[0]
    moved = [value + (longer if at < many else rarer) for at, value in enumerate(reply)]
    assert A_BORDER.height(moved) == pytest.approx(A_BORDER.height(reply), abs=1e-9)


@pytest.mark.parametrize("many", [WIDTH - 1, WIDTH + 1])
def test_a_reply_with_another_number_of_log_probs_is_refused(many):
    with pytest.raises(ValueError, match=f"{many} log-probs, but a border through {WIDTH}"):
        A_BORDER.height([0.0] * many)


def test_what_a_model_rules_out_is_far_and_not_nowhere():
    assert math.isfinite(A_BORDER.height([-math.inf, *[-20.0] * (WIDTH - 1)]))


@pytest.mark.parametrize("strength", [0.5, 30.0])
def test_values_of_unseen_rows_are_those_of_a_fit_without_them(strength):
    """Against numpy's solution of each smaller problem, in float64."""
    random = np.random.default_rng(0)
    rows = np.hstack([random.normal(size=(12, 4)), np.ones((12, 1))])
    heavy, aims = random.uniform(0.5, 2, 12), random.choice([-1.0, 1.0], 12)
    pull = strength * np.diag([1.0, 1, 1, 1, 0])

    def solved(keep):
        kept, weighed = rows[keep], rows[keep] * heavy[keep, None]
        return np.linalg.solve(weighed.T @ kept + pull, weighed.T @ aims[keep])

    ((weights, unseen),) = ridge(rows.tolist(), heavy.tolist(), aims.tolist(), strengths=[strength])
    everyone = np.arange(12)
    np.testing.assert_allclose(np.array(weights), solved(everyone), rtol=1e-10)
    without = [rows[at] @ solved(everyone != at) for at in everyone]
    np.testing.assert_allclose(np.array(unseen), without, rtol=1e-9)


def test_a_border_counts_the_replies_above_borders_that_were_fitted_without_them():
    """Fitted again without each reply, in float64 by numpy's solver, for each strength."""
    kinds = drawn(3, apart=2)
    found = borders(kinds, PARTS)
    plain = np.array([reply for said in kinds.values() for reply in said])
    halves = [plain[:, : PARTS[0]], plain[:, PARTS[0] :]]
    rows = np.hstack([half - half.mean(1, keepdims=True) for half in halves])
    rows = np.hstack([rows / rows.std(0), np.ones((len(rows), 1))])
    names = np.array([name for name, said in kinds.items() for _ in said])
    for border, kind in ((found.complaint, "complaint"), (found.thanks, "thanks")):
        own = names == kind
        aims = np.where(own, 1.0, -1.0)
        heavy = len(own) / 2 / np.where(own, own.sum(), (~own).sum())

        def fit(keep, strength, heavy=heavy, aims=aims):
            kept, weighed = rows[keep], rows[keep] * heavy[keep, None]
            pull = strength * np.diag([1.0] * WIDTH + [0.0])
            return np.linalg.solve(weighed.T @ kept + pull, weighed.T @ aims[keep])

        everyone = np.arange(len(own))
        unseen = {
            strength: np.array([rows[at] @ fit(everyone != at, strength) for at in everyone])
            for strength in STRENGTHS
        }
        errors = {strength: (heavy * (values - aims) ** 2).sum() for strength, values in unseen.items()}
        best = min(STRENGTHS, key=errors.__getitem__)
        above = unseen[best] > border.at + fit(everyone >= 0, best)[-1]
        assert (border.found, border.of) == (above[own].sum(), own.sum())
        assert (border.taken, border.others) == (above[~own].sum(), (~own).sum())
        assert border.taken <= 0.05 * border.others + 1
    shares = (
        found.complaint.found / 60,
        found.thanks.found / 20 if found.thanks.holds else 0,
        1 - found.complaint.taken / 70,
    )
    assert found.right == pytest.approx(sum(shares) / 3)


def test_a_border_is_described_with_the_interval_of_its_share():
    border = replace(A_BORDER, found=81, of=128, taken=7, others=190)
    low, high = wilson_interval(81, 128).low, wilson_interval(81, 128).high
    assert (round(low, 2), round(high, 2)) == (0.55, 0.71)
    assert border.described("complaints") == (
        "81 of 128 complaints (55% to 71%) and takes 7 of 190 others for one"
    )


@pytest.mark.parametrize("subject", [REPLIES, ASKED, RESULTS])
def test_what_is_asked_begins_alike_for_all_texts_and_ends_with_the_text(subject: Subject):
    """So that an engine computes what texts share once."""
    one, other = subject.rows("No."), subject.rows("Thanks.")
    assert len(one) == len(other) == sum(subject.parts)
    many = subject.parts[0]
    assert [before for before, _ in one[:many]] == [before for before, _ in other[:many]]
    assert {text for _, text in one[:many]} == ({"No."} if many else set())
    assert [answer for _, answer in one[many:]] == [answer for _, answer in other[many:]]
    assert all("No." in before[-1] for before, _ in one[many:])
    assert len(form()) == 12


def test_shipped_texts_are_of_three_kinds_and_all_different():
    for subject in (REPLIES, RESULTS):
        assert set(subject.texts) == set(KINDS)
        every = [text for said in subject.texts.values() for text in said]
        assert len(set(every)) == len(every)
        assert all(len(said) >= 16 for said in subject.texts.values())
    shown = {text for said in REPLIES.examples.values() for text in said}
    assert shown.isdisjoint(text for said in REPLIES.texts.values() for text in said)
