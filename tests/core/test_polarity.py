"""Replies told apart by log-odds: borders, and how far they hold."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from afterwit.core.judging import Borders, borders
from afterwit.core.judging.polarity import replies


def drawn(seed: int, *, apart: float) -> Borders:
    """Of 18 complaints, 10 thanks and 8 others, each kind `apart` from the next."""
    random = Random(seed)
    middle = {"complaint": (-apart, 18), "neutral": (0.0, 8), "thanks": (apart, 10)}
    return borders({kind: [random.gauss(at, 1) for _ in range(many)] for kind, (at, many) in middle.items()})


def test_kinds_that_lie_apart_are_told_apart():
    found = drawn(0, apart=6)
    assert found.complaint.right == found.complaint.of == 36
    assert [found.says(odds) for odds in (-6, 0, 6)] == [-1, 0, 1]


def test_a_model_that_tells_nothing_apart_is_not_believed():
    believed = [drawn(seed, apart=0).complaint.holds for seed in range(200)]
    assert sum(believed) <= 5
    assert drawn(0, apart=0).says(-3) is None


def test_thanks_that_lie_among_the_others_are_not_told_from_them():
    found = borders({"complaint": [-3.0] * 18, "neutral": [1.0, 2.0] * 4, "thanks": [1.0, 2.0] * 5})
    assert [found.says(odds) for odds in (-3, 3)] == [-1, 0]


ODDS = st.lists(st.integers(-40, 40), min_size=2, max_size=9)
KINDS = st.fixed_dictionaries({"complaint": ODDS, "neutral": ODDS, "thanks": ODDS})


@given(KINDS, st.integers(-99, 99))
def test_a_constant_added_to_all_log_odds_moves_the_borders_and_tells_the_same_apart(kinds, more):
    plain = borders(kinds)
    moved = borders({kind: [value + more for value in odds] for kind, odds in kinds.items()})
    assert moved.complaint == replace(plain.complaint, at=plain.complaint.at + more)
    assert moved.thanks == replace(plain.thanks, at=plain.thanks.at + more)


def test_the_shipped_replies_are_of_three_kinds_and_all_different():
    found = replies()
    assert set(found) == {"complaint", "thanks", "neutral"}
    every = [reply for kind in found.values() for reply in kind]
    assert len(set(every)) == len(every)
    assert len(found["complaint"]) == len(found["thanks"]) + len(found["neutral"])
