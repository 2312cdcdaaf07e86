"""The judged turns that wait for a person."""

from __future__ import annotations

import pytest

from afterwit.verdict import Flag, Review, ReviewRule


@pytest.mark.parametrize("flags", [(), (Flag.LINK,), (Flag.CONTRADICTS,), (Flag.TOOL_WORDS,)])
@pytest.mark.parametrize("review", list(Review))
def test_what_a_person_accepted_never_waits(flags: tuple[Flag, ...], review: Review) -> None:
    rule = ReviewRule(review=review)
    assert not rule.withholds(flags, accepted=True, rewarded=False)
    assert rule.hints_teach(flags, accepted=True)


@pytest.mark.parametrize(
    ("flags", "waits_for"),
    [
        ((), {Review.ALL}),
        ((Flag.LINK,), {Review.ALL, Review.FLAGGED}),
        ((Flag.TOOL_WORDS, Flag.COMMAND), {Review.ALL, Review.FLAGGED}),
        ((Flag.TOOL_WORDS,), {Review.ALL}),
        ((Flag.CONTRADICTS,), {Review.ALL, Review.FLAGGED, Review.OFF}),
        ((Flag.TOOLS_CONTRADICT,), {Review.ALL, Review.FLAGGED, Review.OFF}),
    ],
)
def test_each_kind_of_review_asks_about_its_turns(flags: tuple[Flag, ...], waits_for: set[Review]) -> None:
    found = {
        review
        for review in Review
        if ReviewRule(review=review).withholds(flags, accepted=False, rewarded=True)
    }
    assert found == waits_for


@pytest.mark.parametrize("review", list(Review))
def test_a_hint_of_tools_alone_does_not_teach_but_its_reward_does(review: Review) -> None:
    flags = (Flag.TOOL_WORDS,)
    strict, published = ReviewRule(review=review), ReviewRule(review=review, tool_hints=True)
    assert not strict.hints_teach(flags, accepted=False)
    assert published.hints_teach(flags, accepted=False)
    assert strict.withholds(flags, accepted=False, rewarded=False)
    assert published.withholds(flags, accepted=False, rewarded=False) is (review is Review.ALL)
