"""A judge whose answers are made wrong now and then, each by chance of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from afterwit.demo.world import World
from afterwit.judging.verdicts import JudgeClient
from afterwit.judging.voting import Answer, evaluation_vote, hint_vote
from afterwit.turn import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakJudge:
    """A judge that is wrong in this share of its answers; which ones follows from their seeds.

    A wrong reward is the opposite one; in place of none, one of the two. In place of a hint there is none or,
    as often, a hint about another rule; in place of none, a hint about any rule.
    """

    judge: JudgeClient
    world: World
    wrong: float

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        """The judge's answer, or a wrong one."""
        answer = await self.judge.ask(messages, temperature=temperature, max_tokens=max_tokens, seed=seed)
        draws = Random(seed)
        if draws.random() >= self.wrong:
            return answer
        hinting = "HINT_START" in (messages[0].content or "")
        return Answer(words=self._hint(answer, draws) if hinting else _reward(answer, draws))

    def _hint(self, answer: Answer, draws: Random) -> str:
        given = hint_vote(answer, (), quote_words=1000).hint
        named = self.world.rules_named_in(given or "")
        others = [rule for rule in self.world.rules if rule not in named]
        if not others or (given is not None and draws.random() < 0.5):
            return r"\boxed{-1}"
        return rf"\boxed{{1}} [HINT_START]{self.world.judge.hint([draws.choice(others)])}[HINT_END]"


def _reward(answer: Answer, draws: Random) -> str:
    given = evaluation_vote(answer).value
    return rf"\boxed{{{-given if given else draws.choice((-1, 1))}}}"


def weakened(judge: JudgeClient, world: World, wrong: float) -> JudgeClient:
    """The judge, wrong in this share of its answers."""
    return WeakJudge(judge=judge, world=world, wrong=wrong) if wrong else judge
