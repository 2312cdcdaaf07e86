"""The pure parts of the page: tokens, plots, whether it helps, and its words."""

from __future__ import annotations

import math

import pytest

from afterwit.core.lifecycle import Reason, State
from afterwit.core.turn import Sampled
from afterwit.stages.gateway.page import plot, words
from afterwit.stages.gateway.page.helping import LEAST, helping, shares
from afterwit.stages.gateway.page.tokens import tokens_of
from afterwit.store import Outcome


def sampled(ids: bytes, probabilities: list[float]) -> Sampled:
    logprobs = tuple(map(math.log, probabilities))
    return Sampled(ids=tuple(ids), logprobs=logprobs, versions=(1,) * len(ids), forced=(False,) * len(ids))


def decode(ids) -> str:
    return bytes(ids).decode(errors="replace")


def test_tokens_of_one_character_are_shown_together_and_all_text_is_there():
    text = "aé\u20ac\U0001f600b"
    ids = text.encode()
    found = tokens_of(sampled(ids, [0.5] * len(ids)), decode, limit=100)
    assert [token.text for token in found] == list(text)
    assert [token.first for token in found] == [0, 1, 3, 6, 10]
    assert found[2].probability == pytest.approx(0.125)


def test_bytes_that_are_no_character_are_shown_one_by_one():
    found = tokens_of(sampled(b"\xff\xfea", [1.0] * 3), decode, limit=100)
    assert [token.text for token in found] == ["\ufffd", "\ufffd", "a"]


def test_doubt_grows_as_probability_falls():
    found = tokens_of(sampled(b"abcde", [1.0, 0.6, 0.3, 0.1, 0.01]), decode, limit=100)
    assert [token.doubt for token in found] == [0, 1, 2, 3, 4]


def test_a_plot_escapes_its_title_and_leaves_out_what_is_not_finite():
    points = [(0.0, 1.0), (1.0, math.nan), (2.0, math.inf), (3.0, 2.0)]
    drawn = str(plot.line(points, title="<b>"))
    assert "<b>&lt;b&gt;" not in drawn
    assert "&lt;b&gt;" in drawn
    assert "nan" not in drawn
    assert "in 2 points" in drawn


@pytest.mark.parametrize("points", [[], [(0.0, 1.0)]])
def test_a_plot_needs_two_points(points):
    assert plot.line(points, title="loss") == ""


def test_a_flat_curve_lies_in_the_middle():
    assert "M6.0 48.0L314.0 48.0" in plot.line([(0.0, 0.0), (1.0, 0.0)], title="flat")


def outcomes(bad: int, of: int) -> list[Outcome]:
    return [Outcome(reward=-1 if n < bad else 1, hinted=False, version=0, at=0.0) for n in range(of)]


def test_whether_it_helps_is_said_only_if_the_difference_is_no_chance():
    assert helping([], [], LEAST - 1) is None
    for first, newest, answer in ((60, 10, "Yes"), (10, 60, "No"), (30, 28, "It cannot be told")):
        found = helping(outcomes(first, 100), outcomes(newest, 100), 200)
        assert found is not None
        assert found.answer.startswith(answer)
        assert (found.first.count, found.newest.count) == (first, newest)


def test_shares_are_of_whole_runs_and_end_with_the_newest():
    held = [True] * 3 + [False] * 4
    assert shares(held, 2) == [(3.0, 1.0), (5.0, 0.0), (7.0, 0.0)]
    assert shares(held, 8) == []


def test_every_state_and_reason_has_words():
    assert set(words.STATES) == set(State)
    assert set(words.REASONS) == set(Reason)
