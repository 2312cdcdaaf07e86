"""Replies told apart by log-odds: borders, and how far they hold."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from afterwit.judging.polarity import PROMPTS, QUESTIONS, WEIGHT, LogProbs, borders, likely, replies


def a_reply(kind: str, by: float) -> LogProbs:
    """A reply that is likelier as this kind than as any other, by so many nats."""
    return {each: by if each == kind else 0.0 for each in PROMPTS}


def drawn(seed: int, *, apart: float) -> dict[str, list[LogProbs]]:
    """18 complaints, 10 thanks and 8 others, each `apart` nats likelier as what they are, give or take 1."""
    random = Random(seed)
    return {
        kind: [
            {each: random.gauss(apart if each == kind else 0.0, 1) for each in PROMPTS} for _ in range(many)
        ]
        for kind, many in (("complaint", 18), ("thanks", 10), ("neutral", 8))
    }


def test_kinds_that_lie_apart_are_told_apart():
    found = borders(drawn(0, apart=9))
    assert found.complaint.right == found.complaint.of == 36
    assert [found.says(a_reply(kind, 9)) for kind in ("complaint", "neutral", "thanks")] == [-1, 0, 1]


def test_a_model_that_tells_nothing_apart_is_not_believed():
    believed = [borders(drawn(seed, apart=0)).complaint.holds for seed in range(200)]
    assert sum(believed) <= 5
    assert borders(drawn(0, apart=0)).says(a_reply("complaint", 9)) is None


def test_thanks_that_lie_among_the_others_are_not_told_from_them():
    mixed = [a_reply("thanks", 1), a_reply("neutral", 1)]
    found = borders({"complaint": [a_reply("complaint", 3)] * 18, "neutral": mixed * 4, "thanks": mixed * 5})
    assert [found.says(a_reply(kind, 3)) for kind in ("complaint", "thanks")] == [-1, 0]


ODDS = st.lists(
    st.fixed_dictionaries({kind: st.integers(-40, 40) for kind in PROMPTS}), min_size=2, max_size=9
)
KINDS = st.fixed_dictionaries(dict.fromkeys(PROMPTS, ODDS))


@given(KINDS, st.integers(-99, 99))
def test_a_prompt_that_makes_every_reply_likelier_moves_the_border_alone(kinds, more):
    """With two kinds: the others lie together where the third is never likely."""
    said = {kind: kinds[kind] for kind in ("complaint", "thanks")}
    two = {kind: [reply | {"neutral": -999} for reply in each] for kind, each in said.items()}
    moved = {
        kind: [reply | {"complaint": reply["complaint"] + more} for reply in each]
        for kind, each in two.items()
    }
    plain, after = borders(two).complaint, borders(moved).complaint
    assert after == replace(plain, at=plain.at + more)


def test_prompts_of_a_kind_count_in_the_mean_and_answers_speak_for_complaints_alone():
    written = {kind: [-10.0, -20.0] for kind in PROMPTS}
    found = likely(written, [(-1.0, -3.0), (-2.0, -1.5)])
    assert found == {"complaint": -15.0 + WEIGHT * (-2.0 + 0.5), "thanks": -15.0, "neutral": -15.0}
    assert all(len(prompts) == 2 for prompts in PROMPTS.values())
    assert all(question.count("{}") == 1 for question, _, _ in QUESTIONS)


def test_the_shipped_replies_are_of_three_kinds_and_all_different():
    found = replies()
    assert set(found) == {"complaint", "thanks", "neutral"}
    every = [reply for kind in found.values() for reply in kind]
    assert len(set(every)) == len(every)
    assert len(found["complaint"]) == len(found["thanks"]) + len(found["neutral"])
