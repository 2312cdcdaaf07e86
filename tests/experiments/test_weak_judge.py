"""A judge that is made wrong is wrong as often as set, and in the ways that are set."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from afterwit.demo.worlds import WORLDS
from afterwit.judging.voting import Answer
from afterwit.turn import Message
from experiments.simulation.manners import Manner
from experiments.simulation.plan import Plan
from experiments.simulation.weak_judge import WeakJudge, weakened
from tests.fakes.judge import parse_evaluation, parse_hint

WORLD = WORLDS["tools"]
RULE = next(iter(WORLD.rules))
HINT = rf"\boxed{{1}} [HINT_START]{WORLD.judge.hint([RULE])}[HINT_END]"


@dataclass
class Says:
    answer: str

    async def ask(self, messages, *, temperature, max_tokens, seed):
        return Answer(words=self.answer)


async def answers(right: str, *, hint: bool, wrong: float = 0.25) -> list[str]:
    judge = WeakJudge(judge=Says(right), world=WORLD, wrong=wrong)
    asked = [Message(role="system", content="HINT_START" if hint else "Judge.")]
    seeds = [seed * 7919 + 1 for seed in range(1000)]
    said = [await judge.ask(asked, temperature=0.6, max_tokens=9, seed=seed) for seed in seeds]
    return [answer.words for answer in said]


@pytest.mark.parametrize("value", [-1, 1])
async def test_a_reward_turns_into_its_opposite_in_the_share_that_was_asked_for(value):
    votes = [parse_evaluation(said).value for said in await answers(rf"\boxed{{{value}}}", hint=False)]
    assert set(votes) == {value, -value}
    assert 200 < votes.count(-value) < 300


async def test_a_wrong_hint_is_none_or_one_about_another_rule():
    votes = [parse_hint(said, (), quote_words=99) for said in await answers(HINT, hint=True)]
    named = [WORLD.rules_named_in(vote.hint) for vote in votes if vote.hint is not None]
    assert 90 < sum(vote.value == -1 for vote in votes) < 160
    assert 90 < sum(rules != {RULE} for rules in named) < 160
    assert all(len(rules) == 1 for rules in named)


async def test_where_there_is_no_hint_a_wrong_one_is_made_up():
    said = await answers(r"\boxed{-1}", hint=True)
    votes = [parse_hint(words, (), quote_words=99) for words in said]
    assert 200 < sum(vote.hint is not None for vote in votes) < 300


async def test_the_same_seed_gives_the_same_answer():
    assert await answers(HINT, hint=True) == await answers(HINT, hint=True)


def test_a_judge_that_is_never_wrong_is_the_judge_itself():
    judge = Says("")
    assert weakened(judge, WORLD, 0.0) is judge


def test_how_people_react_and_how_wrong_the_judge_is_are_facts_of_a_run_only_where_they_differ():
    plain = Plan(world="tools", seed=0).facts()
    other = Plan(world="tools", seed=0, wrong=0.25, people=Manner.ONE).facts()
    assert not {"people", "wrong"} & plain.keys()
    assert other == plain | {"wrong": 0.25, "people": "one"}
