"""The pure parts of the page: tokens, plots, whether it helps, and its words."""

from __future__ import annotations

import math

import pytest

from afterwit.lifecycle import State
from afterwit.page import html as words
from afterwit.page.curves import approved, line, metrics, shares
from afterwit.page.lists import tokens_of
from afterwit.store import VersionRecord
from afterwit.turn import Sampled
from afterwit.version import Origin, SuiteResult


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
    drawn = str(line(points, title="<b>"))
    assert "<b>&lt;b&gt;" not in drawn
    assert "&lt;b&gt;" in drawn
    assert "nan" not in drawn
    assert "in 2 points" in drawn


@pytest.mark.parametrize("points", [[], [(0.0, 1.0)]])
def test_a_plot_needs_two_points(points):
    assert line(points, title="loss") == ""


def test_a_flat_curve_lies_in_the_middle():
    assert "M6.0 48.0L314.0 48.0" in line([(0.0, 0.0), (1.0, 0.0)], title="flat")


def test_shares_are_of_whole_runs_and_end_with_the_newest():
    held = [True] * 3 + [False] * 4
    assert shares(held, 2) == [(3.0, 1.0), (5.0, 0.0), (7.0, 0.0)]
    assert shares(held, 8) == []


def test_a_token_shows_the_strongest_advantage_of_its_ids_and_which_way_it_was_pushed():
    ids = "a\u20acbcd".encode()
    found = tokens_of(
        sampled(ids, [0.5] * len(ids)),
        decode,
        limit=100,
        advantages=(0.01, 0.1, -0.9, 0.2, 0.3, -0.1, 1.5),
    )
    assert [token.advantage for token in found] == [0.01, -0.9, 0.3, -0.1, 1.5]
    assert [token.push for token in found] == ["none", "down3", "up2", "down1", "up3"]


def test_without_an_update_no_token_has_an_advantage():
    found = tokens_of(sampled(b"ab", [0.5, 0.5]), decode, limit=100)
    assert [(token.advantage, token.push) for token in found] == [(None, "none")] * 2


def test_a_band_goes_along_its_upper_ends_and_back_along_the_lower_ones():
    drawn = str(line([(0.0, 0.5), (1.0, 0.5)], title="c", share=True, band=[(0, 0.0, 1.0), (1, 0.0, 1.0)]))
    assert "M6.0 8.0L314.0 8.0L314.0 88.0L6.0 88.0Z" in drawn


def version(number: int, **lost: tuple[int, int]) -> VersionRecord:
    suite = SuiteResult(lost=lost, evidence=0.0) if lost else None
    return VersionRecord(
        number=number,
        parent=number - 1,
        origin=Origin.UPDATE,
        created=0.0,
        restores=None,
        reverts=(),
        committed_at=0.0,
        published_at=None,
        trained=8,
        replayed=0,
        metrics={"loss": 1.0 / number, "grad_norm": 1.0, "z": 2.0},
        suite=suite,
    )


def test_the_curve_of_what_people_approved_is_the_share_kept_of_all_kinds():
    drawn = str(approved([version(1), version(2, edit=(1, 4), text=(0, 6)), version(3, edit=(0, 4))]))
    assert "from 90% to 100%, in 2 points" in drawn


def test_the_numbers_of_updates_come_by_weight_and_have_names_for_people():
    titles = [str(each["svg"]).split("<span>")[1].split("<")[0] for each in metrics([version(1), version(2)])]
    assert titles == ["loss", "norm of the gradient", "z"]


def test_every_state_has_words():
    assert set(words.STATES) == set(State)
