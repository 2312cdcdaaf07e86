from __future__ import annotations

from typing import NamedTuple

from afterwit.promotion.episodes import BadEnd, confirming, may_end_badly, watch_evidence
from afterwit.promotion.suite import PromotionSettings

WATCH = PromotionSettings()
GOOD = (0, 20)
"""Of 20 episodes before, none ended badly."""


class End(NamedTuple):
    """How an episode ended."""

    place: int
    bad: BadEnd | None
    complaint: bool

    @property
    def unasked(self) -> bool:
        return self.bad is BadEnd.UNASKED


def ends(letters: str) -> list[End]:
    """For each letter: well, badly, with a complaint that teaches, or one that no hint was asked for."""
    bad = {"b": BadEnd.DISPLEASED, "u": BadEnd.UNASKED}
    return [End(place, bad.get(letter), letter != "w") for place, letter in enumerate(letters)]


def bound(before: tuple[int, int], base: tuple[int, int] | None = None) -> float:
    return may_end_badly(WATCH.may_end_badly, before=before, base=before if base is None else base)


def alarms(letters: str, *, before: tuple[int, int], base: tuple[int, int] | None = None) -> bool:
    return watch_evidence(ends(letters), bound=bound(before, base)) >= WATCH.alarm_at


def confirms(letters: str, *, before: tuple[int, int] = GOOD) -> int | None:
    """The place of the first episode that confirms."""
    first = confirming(ends(letters), after=WATCH.confirm_after, bound=bound(before))
    return None if first is None else first.place


def test_a_version_is_confirmed_by_six_episodes_in_a_row():
    assert confirms("w" * 5) is None
    assert confirms("w" * 5 + "b") is None
    assert confirms("b" + "w" * 6) == 1
    assert confirms("w" * 7) is None
    assert confirms("w" * 12) == 6
    assert confirms("") is None


def test_a_complaint_that_teaches_neither_confirms_nor_stands_against_a_version():
    assert confirms("c" * 6) is None
    assert confirms("w" * 5 + "c") is None
    assert confirms("wcwcwccwccwcw") == 0
    assert confirms("wwwbwww") is None
    assert not alarms("c" * 40, before=GOOD)


def test_complaints_without_a_question_for_a_hint_end_no_row_but_are_counted():
    assert confirms("wuwuwuuwuuwuw", before=(20, 24)) == 0
    assert confirms("wuwuwuuwuuwuw") is None
    assert confirms("wwwbwww", before=(20, 24)) is None


def test_a_row_of_good_episodes_among_many_bad_ones_confirms_nothing():
    many = "bw" * 9 + "w" * 5
    assert confirms(many) is None
    assert confirms(many, before=(10, 20)) is not None
    assert confirms(many + "w" * 18) is not None


def test_many_bad_episodes_are_an_alarm_and_few_are_none():
    assert watch_evidence([], bound=bound(GOOD)) == 0
    assert not alarms("wb" + "w" * 10, before=GOOD)
    assert alarms("w" * 10 + "bbbb", before=GOOD)


def test_people_who_were_displeased_before_are_no_alarm():
    assert alarms("bbw" * 8, before=GOOD)
    assert not alarms("bbw" * 8, before=(20, 30))
    assert not alarms("b" * 6, before=(2, 2))
    assert alarms("bbbb", before=(0, 0))


def test_a_few_good_episodes_before_are_no_reason_to_expect_more_bad_ones():
    assert bound((0, 2)) == bound(GOOD) == WATCH.may_end_badly


def test_one_bad_episode_before_says_little():
    assert bound((1, 1)) < 0.4
    assert alarms("bbw" * 10 + "bb", before=(1, 1))


def test_a_share_that_grew_since_the_model_came_is_no_measure_beyond_twice_the_setting():
    assert bound((12, 24), base=(1, 24)) == 2 * WATCH.may_end_badly
    assert bound((12, 24), base=(12, 24)) > 0.4
    assert bound((5, 24), base=(0, 24)) < 2 * WATCH.may_end_badly
    assert alarms("bbw" * 8, before=(16, 24), base=(1, 10))
