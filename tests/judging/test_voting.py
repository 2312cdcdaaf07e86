"""Reading the judge's words and tallying votes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.judging.voting import (
    CUT,
    Accept,
    Answer,
    Verify,
    VoteRules,
    evaluation_vote,
    hint_vote,
    outside_thoughts,
    reward,
    tally,
)
from afterwit.verdict import Question, Source, Vote
from tests.fakes.judge import parse_evaluation, parse_hint

RULES = VoteRules(votes=3, accept=Accept.MAJORITY, max_candidates=3, quote_words=8)
ANY = VoteRules(votes=3, accept=Accept.ANY, max_candidates=3, quote_words=8)
HINT = "[HINT_START]Read the file before you edit it.[HINT_END]"


def voted_hint(value: int | None, hint: str | None = None) -> Vote:
    return Vote(question=Question.HINT, words="", value=value, hint=hint)


def evaluation(value: int | None) -> Vote:
    return Vote(question=Question.EVALUATION, words="", value=value)


def read_hint(words: str, *said: str) -> Vote:
    return parse_hint(words, said, quote_words=8)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (r"\boxed{1}", 1),
        (r"\boxed{-1}", -1),
        (r"\boxed{0}", 0),
        (r"First I thought \boxed{1}, but no: \boxed{-1}.", -1),
        (r"<think>\boxed{1}</think>\boxed{-1}", -1),
        (r"\boxed{1}<think>\boxed{-1}</think>", 1),
        (r"<think>\boxed{1}</think> I cannot tell.", None),
        (r"\boxed{1}</think>\boxed{0}", 0),
        (r"\boxed{1}</think> I cannot tell.", None),
        (r"\boxed{1}<think>but then \boxed{-1}", 1),
        (r"<think>it never ends \boxed{1}", None),
        (r"<think>a</think>\boxed{1}<think>b \boxed{-1}</think>", 1),
        (r"<think>a<think>b</think>\boxed{1}</think>\boxed{-1}", -1),
        (r"\boxed{2}", None),
        (r"\boxed{+1}", 1),
        (r"\boxed{ -1 }", -1),
        (r"It went well, so \boxed{1}.", 1),
        (r"$$\boxed{1}$$", 1),
        (r"**Answer: \(\boxed{-1}\)**", -1),
        (r"<answer>\boxed{1}</answer>", 1),
        ("\\boxed{1}\n\nThe person thanks.", 1),
        (r"had it gone well I would answer \boxed{1}, but the person", None),
        (r"It is not \boxed{1} here", None),
        (r"First \boxed{-1}. No, had it gone well I would say \boxed{1} at once", None),
        ("\\boxed{1}\nis for thanks.\n\nThey complain.\nSo it is bad.", None),
        (r"\boxed{1.0}", None),
        (r"\boxed{yes}", None),
        (r"\boxed{}", None),
        ("boxed{1}", None),
        ("1", None),
        ("", None),
    ],
)
def test_the_last_box_outside_the_thinking_is_the_vote(words, value):
    vote = parse_evaluation(words)
    assert (vote.question, vote.words, vote.value) == (Question.EVALUATION, words, value)


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("<think>", "</think>"),
        ("<Thinking>", "</Thinking>"),
        ("<thought>", "</thought>"),
        ("<reasoning>", "</reasoning>"),
        ("<seed:think>", "</seed:think>"),
        ("[THINK]", "[/THINK]"),
        ("<|channel>thought\n", "<channel|>"),
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
        ("analysis", "assistantfinal"),
    ],
)
def test_a_thought_does_not_vote_whatever_marks_it(begin, end):
    thought = r"So it is \boxed{1}."
    assert parse_evaluation(rf"{begin}{thought}{end}\boxed{{-1}}").value == -1
    assert parse_evaluation(f"{begin}{thought}{end}").value is None
    assert parse_evaluation(f"{begin}{thought}").value is None
    assert read_hint(rf"{begin}\boxed{{1}} {HINT}{end}\boxed{{-1}}").value == -1
    assert read_hint(rf"{begin}\boxed{{1}} {HINT}").value is None


def test_an_answer_that_did_not_come_to_its_end_is_no_vote():
    cut = Answer(words=rf"\boxed{{1}} {HINT}", finished=False)
    for vote in (evaluation_vote(cut), hint_vote(cut, (), quote_words=8)):
        assert (vote.words, vote.value, vote.hint, vote.rejected) == (cut.words, None, None, CUT)
    whole = replace(cut, finished=True)
    assert (
        evaluation_vote(replace(whole, words=r"\boxed{1}")).value,
        hint_vote(whole, (), quote_words=8).value,
    ) == (1, 1)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (rf"\boxed{{1}} {HINT}", 1),
        (rf"{HINT} \boxed{{1}}", 1),
        (r"\boxed{-1}", -1),
        (rf"\boxed{{-1}} {HINT}", -1),
        (rf"<think>\boxed{{-1}}</think>\boxed{{1}} {HINT}", 1),
        (rf"\boxed{{1}} \boxed{{1}} {HINT}", None),
        (rf"\boxed{{1}} \boxed{{-1}} {HINT}", None),
        (rf"\boxed{{1}} \boxed{{0}} {HINT}", None),
        (rf"\boxed{{1}} \boxed{{maybe}} {HINT}", None),
        (rf"\boxed{{0}} {HINT}", None),
        (HINT, None),
        (r"\boxed{1}", None),
        (rf"<think>{HINT}</think>\boxed{{1}}", None),
        (r"\boxed{1} [HINT_START]Read it first, please.", None),
        (rf"\boxed{{+1}}: {HINT}", 1),
        (rf"I would say \boxed{{1}} and write {HINT} if it had failed", None),
    ],
)
def test_a_hint_vote_has_exactly_one_box_and_a_hint_if_it_is_1(words, value):
    vote = read_hint(words)
    assert vote.value == value
    assert vote.hint == ("Read the file before you edit it." if value == 1 else None)


def test_the_last_marked_hint_counts_and_marks_never_stay_in_it():
    vote = read_hint(rf"\boxed{{1}}[HINT_START]a[HINT_START]Draft of it.[HINT_END]{HINT}")
    assert vote.hint == "Read the file before you edit it."
    assert read_hint(r"\boxed{1}[HINT_START][HINT_START]Look twice.[HINT_END]").hint == "Look twice."


@pytest.mark.parametrize(("length", "valid"), [(0, False), (10, False), (11, True)])
def test_a_hint_needs_more_than_ten_characters_when_stripped(length, valid):
    vote = read_hint(rf"\boxed{{1}}[HINT_START]   {'x' * length} {chr(10)}[HINT_END]")
    assert vote.value == (1 if valid else None)
    assert (vote.rejected is None) is valid


def test_a_rejected_hint_makes_the_vote_invalid_and_says_why():
    talk = read_hint(r"\boxed{1}[HINT_START]As the hint says, read it first.[HINT_END]")
    quote = read_hint(
        r"\boxed{1}[HINT_START]You should say that the port is 8080 and the host is db.[HINT_END]",
        "It turns out that the port is 8080 and the host is db.",
    )
    assert (talk.value, talk.hint, talk.rejected) == (None, None, "hint speaks of hints")
    assert (quote.value, quote.hint, quote.rejected) == (None, None, "hint quotes the next state")


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ((), 0),
        ((None, None), 0),
        ((1,), 1),
        ((1, 1, -1), 1),
        ((1, -1), 0),
        ((1, -1, None), 0),
        ((-1, None, None), -1),
        ((1, -1, 0), 0),
        ((0, 0, 1), 0),
        ((1, 1, 0, 0, -1), 0),
        ((1, 1, -1, -1, 0), 0),
    ],
)
def test_the_reward_is_the_most_frequent_valid_vote_and_a_tie_is_0(votes, expected):
    assert reward(votes) == expected


@given(st.lists(st.sampled_from((1, 0, -1, None)), max_size=9).flatmap(lambda votes: st.permutations(votes)))
def test_the_reward_is_a_strict_plurality_in_whatever_order_the_votes_come(votes):
    counts = Counter(vote for vote in votes if vote is not None)
    winners = [value for value, count in counts.items() if count == max(counts.values())]
    assert reward(votes) == (winners[0] if len(winners) == 1 else 0)


@given(st.lists(st.sampled_from((1, 0, -1, None)), max_size=9))
def test_swapping_good_and_bad_swaps_the_reward(votes):
    swapped = [None if vote is None else -vote for vote in votes]
    assert reward(swapped) == -reward(votes)


@pytest.mark.parametrize(
    ("values", "majority", "any_"),
    [
        ((1, 1, 1), True, True),
        ((1, 1, -1), True, True),
        ((1, -1, -1), False, True),
        ((1, -1), False, True),
        ((1, -1, None), False, True),
        ((1, None, None), True, True),
        ((-1, -1, -1), False, False),
        ((None, None, None), False, False),
        ((), False, False),
    ],
)
def test_hints_are_kept_when_more_than_half_of_the_valid_hint_votes_found_one(values, majority, any_):
    votes = [voted_hint(value, "Look before you leap." if value == 1 else None) for value in values]
    assert bool(tally(votes, RULES).hints) is majority
    assert bool(tally(votes, ANY).hints) is any_


def test_each_question_counts_its_own_votes():
    votes = [evaluation(-1), voted_hint(1, "Look before you leap."), voted_hint(1, "Read it all first.")]
    verdict = tally(votes, RULES)
    assert verdict.reward == -1
    assert verdict.hints == ("Read it all first.", "Look before you leap.")
    assert verdict.votes == tuple(votes)
    assert verdict.source is Source.VOTES


def test_a_decided_reward_counts_against_every_vote():
    votes = [evaluation(1), evaluation(1), voted_hint(1, "Look before you leap.")]
    verdict = tally(votes, RULES, (-1, Source.FEEDBACK))
    assert (verdict.reward, verdict.source) == (-1, Source.FEEDBACK)
    assert verdict.hints == ("Look before you leap.",)


@given(st.text(alphabet="ab\\boxed{}10-<think>/ ", max_size=60))
def test_any_words_give_a_vote_that_reads_the_same_with_thinking_put_before_it(words):
    vote = parse_evaluation(words)
    assert vote.value in (1, 0, -1, None)
    assert parse_evaluation(rf"<think>\boxed{{0}} hm</think>{words}").value == vote.value


@given(st.text(max_size=40).filter(lambda words: "think>" not in words))
def test_words_without_thinking_are_said_whole(words):
    assert outside_thoughts(words) == words


@pytest.mark.parametrize("field", ["votes", "max_candidates", "quote_words"])
def test_rules_below_one_are_refused(field):
    fields = {"votes": 1, "accept": Accept.ANY, "max_candidates": 1, "quote_words": 1}
    with pytest.raises(ValueError, match=f"{field} is 0, but must be at least 1"):
        VoteRules(**fields | {field: 0})


def verdict(verify: Verify, rewards: list[int | None], hinting: list[int]) -> tuple[int, tuple[str, ...]]:
    rules = VoteRules(votes=3, accept=Accept.MAJORITY, max_candidates=3, quote_words=8, verify=verify)
    votes = [evaluation(value) for value in rewards]
    votes += [read_hint(rf"\boxed{{1}} {HINT}" if value == 1 else r"\boxed{-1}") for value in hinting]
    found = tally(votes, rules)
    return found.reward, found.hints


def test_a_verified_verdict_counts_only_what_stands_together():
    words = read_hint(rf"\boxed{{1}} {HINT}").hint
    assert verdict(Verify.OFF, [1, 1, -1], [1, 1, -1]) == (1, (words,))
    assert verdict(Verify.UNANIMOUS, [1, 1, -1], [1, 1, 1]) == (0, (words,))
    assert verdict(Verify.UNANIMOUS, [-1, -1, -1], [1, 1, -1]) == (-1, ())
    assert verdict(Verify.UNANIMOUS, [-1, -1, None], [1, 1]) == (-1, (words,))


@pytest.mark.parametrize(
    ("rewards", "hinting", "reward", "hinted"),
    [
        ([1, 1, -1], [1, -1, -1], 1, False),
        ([1, 1, 1], [1, 1, -1], 1, False),  # four votes say that it was good, two that it was not
        ([1, 1, -1], [1, 1, 1], 0, True),  # two and four: the complaint is learned from, and not paid
        ([1, 1, -1], [1, 1, -1], 0, False),  # three and three
        ([1, 1, 1], [1, 1, 1], 1, False),  # as many, but the reward is undivided
        ([-1, -1, 1], [-1, -1, -1], 0, False),
        ([-1, -1, 1], [1, -1, -1], 0, False),
        ([-1, -1, -1], [-1, -1, -1], -1, False),  # one who never gives a hint still counts
        ([-1, -1, 1], [1, 1, -1], -1, True),
        ([0, 0, 0], [1, 1, -1], 0, True),
    ],
)
def test_votes_on_both_questions_are_counted_together(
    rewards: list[int | None], hinting: list[int], reward: int, hinted: bool
) -> None:
    words = read_hint(rf"\boxed{{1}} {HINT}").hint
    assert verdict(Verify.CONSISTENT, rewards, hinting) == (reward, (words,) if hinted else ())


def test_a_persons_thumb_and_a_hint_may_stand_together():
    rules = VoteRules(
        votes=3, accept=Accept.MAJORITY, max_candidates=3, quote_words=8, verify=Verify.CONSISTENT
    )
    votes = [read_hint(rf"\boxed{{1}} {HINT}")] * 3
    assert tally(votes, rules, (1, Source.FEEDBACK)).hints


def test_of_a_very_long_answer_the_beginning_and_the_end_are_stored():
    vote = evaluation_vote(Answer(words="Hm. " * 600_000 + r"\boxed{1}"))
    assert vote.value == 1
    assert len(vote.words) < 70_000
    assert vote.words.endswith(r"\boxed{1}")
