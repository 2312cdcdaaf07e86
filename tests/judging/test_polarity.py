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
    EXCHANGE,
    OPENINGS,
    UNREAD,
    LogProbs,
    asked,
    borders,
    examples,
    form,
    replies,
    ridge,
)

KINDS = ("complaint", "thanks", "neutral")
WIDTH = len(examples()) + len(OPENINGS)


def a_reply(kind: str, by: float, random: Random) -> LogProbs:
    """Noise of a nat, and so many nats more of an example and an opening of the kind."""
    found = [random.gauss(-20.0, 1.0) for _ in range(WIDTH)]
    for at in (KINDS.index(kind), len(examples()) + KINDS.index(kind)):
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
    found = borders(drawn(0, apart=9))
    assert (found.complaint.found, found.complaint.of) == (60, 60)
    assert (found.thanks.found, found.thanks.of) == (20, 20)
    for kind, value in zip(KINDS, (-1, 1, 0), strict=True):
        says = [found.read(reply).value for reply in drawn(1, apart=9)[kind]]
        assert says.count(value) >= 0.9 * len(says)


def test_a_model_that_tells_nothing_apart_is_not_believed():
    found = [borders(drawn(seed, apart=0)) for seed in range(3)]
    assert not any(each.complaint.holds or each.thanks.holds for each in found)
    assert found[0].read(a_reply("complaint", 9, Random(0))) == UNREAD


def test_thanks_that_lie_among_the_others_are_not_told_from_them():
    kinds = drawn(0, apart=9)
    mixed = kinds | {"thanks": drawn(2, apart=9)["neutral"][:20]}
    found = borders(mixed)
    assert found.complaint.holds
    assert not found.thanks.holds
    assert {found.read(reply).value for reply in mixed["thanks"]} == {0}


def test_few_others_are_taken_for_complaints_even_where_kinds_overlap():
    found = borders(drawn(0, apart=2))
    unseen = drawn(1, apart=2)
    others = [found.complaint.height(reply) > 0 for kind in KINDS[1:] for reply in unseen[kind]]
    assert 0 < sum(others) < 0.15 * len(others)
    assert 20 < found.complaint.found < 60


def test_a_reply_close_to_the_border_is_a_hint_without_a_reward():
    found = borders(drawn(0, apart=2))
    near = replace(found.complaint, at=found.complaint.at + 1)
    shifted = replace(found, complaint=replace(near, near=1.0 + found.complaint.near))
    read = [(found.read(reply), shifted.read(reply)) for reply in drawn(1, apart=2)["complaint"]]
    assert found.complaint.near > 0
    assert all(before.hint == after.hint for before, after in read)
    assert {before.value for before, _ in read if before.hint} == {-1, 0}
    assert {before.value for before, after in read if before.hint and after.value != -1} >= {-1}
    assert all(reading.hint or reading.value != -1 for pair in read for reading in pair)


NATS = st.floats(-50, 50)
A_BORDER = borders(drawn(0, apart=3)).complaint


@given(st.lists(NATS, min_size=WIDTH, max_size=WIDTH), NATS, NATS)
def test_a_reply_that_is_longer_or_rarer_everywhere_reads_the_same(reply, longer, rarer):
    many = len(examples())
    moved = [value + (longer if at < many else rarer) for at, value in enumerate(reply)]
    assert A_BORDER.height(moved) == pytest.approx(A_BORDER.height(reply), abs=1e-9)


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

    weights, unseen = ridge(rows.tolist(), heavy.tolist(), aims.tolist(), strength=strength)
    everyone = np.arange(12)
    np.testing.assert_allclose(np.array(weights), solved(everyone), rtol=1e-10)
    without = [rows[at] @ solved(everyone != at) for at in everyone]
    np.testing.assert_allclose(np.array(unseen), without, rtol=1e-9)


def test_what_is_asked_begins_alike_for_all_replies_and_ends_with_the_reply():
    """So that an engine computes what replies share once."""
    one, other = asked("No."), asked("Thanks.")
    many = len(examples())
    assert [before for before, _ in one[:many]] == [before for before, _ in other[:many]]
    assert {text for _, text in one[:many]} == {"No."}
    assert [before for before, _ in one[many:]] == [(*EXCHANGE, "No.")] * len(OPENINGS)
    assert len(one) == WIDTH
    assert len(form()) == 12


def test_the_shipped_replies_are_of_three_kinds_and_all_different():
    found = replies()
    assert set(found) == set(KINDS)
    every = [reply for said in (*found.values(), *examples().values()) for reply in said]
    assert len(set(every)) == len(every)
    assert all(len(said) >= 40 for said in found.values())
