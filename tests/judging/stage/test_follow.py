"""A hint that the model does not follow when it is shown it does not train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from afterwit.errors import JudgeUnavailable
from afterwit.judging.engine_judge import EngineJudge
from afterwit.judging.hinted_prompts import HEADING
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.verdicts import LEAST_TOKENS, MOST_TOKENS, HintTrial
from afterwit.judging.voting import Answer
from afterwit.lifecycle import Reason, State
from afterwit.turn import Conversation, Message
from afterwit.verdict import Question, Source, Verdict
from tests.fakes.judge import HINT_WORDS, asks_for_hint
from tests.fakes.turns import a_turn
from tests.judging.stage.house import DOWN, House


class Model:
    """Answers what the test gives, in turn; the last answer again and again."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Conversation, int, int]] = []

    async def answer(
        self, conversation: Conversation, *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        self.asked.append((conversation, max_tokens, seed))
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(given, Exception):
            raise given
        return Answer(words=given, finished=False)


def judge(hint: str = HINT_WORDS, *, reward: int = -1) -> Any:
    """Votes, gives a hint, and finds that an answer follows it if it holds the word `read`."""

    def answer(messages: Sequence[Message]) -> str | Exception:
        if "wrote an ANSWER" in (messages[0].content or ""):
            shown = messages[-1].content or ""
            if "unclear" in shown:
                return "Who knows."
            return r"\boxed{1}" if "I read it" in shown else r"\boxed{-1}"
        if asks_for_hint(messages):
            return rf"\boxed{{1}}[HINT_START]{hint}[HINT_END]"
        return rf"\boxed{{{reward}}}"

    return answer


def tried(house: House, model: Model, **settings: Any) -> None:
    house.judge._trial = HintTrial(cast(EngineJudge, model), JudgeSettings(**settings))


@pytest.mark.parametrize(
    ("answers", "times", "kept"),
    [
        (("I read it.",), 1, True),
        (("I edit it.", "I read it."), 2, True),
        (("I edit it.", "I edit it."), 2, False),
        (("unclear",), 1, True),
        ((DOWN,), 1, True),
    ],
)
async def test_a_hint_trains_unless_no_answer_follows_it(house, answers, times, kept):
    house.client.answer, model = judge(), Model(*answers)
    tried(house, model)
    await house.answered("t1")
    await house.judge.step()
    record = await house.record("t1")
    assert record.verdict.hints == ((HINT_WORDS,) if kept else ())
    assert (record.state, record.rl, record.opd) == (State.JUDGED, True, kept)
    (vote,) = [each for each in record.verdict.votes if each.question is Question.FOLLOWS]
    assert (vote.rejected is None, vote.hint) == (kept, HINT_WORDS if kept else None)
    assert len(model.asked) == times
    assert len({seed for *_, seed in model.asked}) == times
    assert all(HINT_WORDS in str(asked.messages[-1].content) for asked, *_ in model.asked)
    assert all(HEADING in str(asked.messages[-1].content) for asked, *_ in model.asked)
    assert all(LEAST_TOKENS <= room <= MOST_TOKENS for _, room, _ in model.asked)


async def test_a_turn_with_nothing_but_such_a_hint_ends_with_that_reason(house):
    house.client.answer = judge(reward=0)
    tried(house, Model("I edit it."))
    await house.answered("t1")
    await house.judge.step()
    record = await house.record("t1")
    assert (record.state, record.reason) == (State.SKIPPED, Reason.HINT_NOT_FOLLOWED)
    assert record.verdict.unfollowed
    (vote,) = [each for each in record.verdict.votes if each.question is Question.FOLLOWS]
    assert vote.rejected == f"shown it, the model does not do it: {HINT_WORDS}"
    assert vote.words == "I edit it."


async def test_a_turn_is_tried_with_the_same_seeds_again(house):
    model, verdict = (
        Model("I edit it."),
        Verdict(reward=-1, source=Source.VOTES, hints=(HINT_WORDS, "Be brief.")),
    )

    async def ask(messages: tuple[Message, ...], seed: int) -> Answer:
        return Answer(words=r"\boxed{-1}")

    trial = HintTrial(cast(EngineJudge, model), JudgeSettings())
    first, again = [await trial.tried(a_turn("t"), verdict, ask) for _ in range(2)]
    assert first == again
    assert first.hints == ()
    seeds = [seed for *_, seed in model.asked]
    assert len(set(seeds)) == 4
    assert seeds == 2 * seeds[:4]


async def test_a_judge_that_goes_away_meanwhile_costs_no_hint(house):
    model = Model("I edit it.")

    def answer(messages: Sequence[Message]) -> str | Exception:
        lost = "wrote an ANSWER" in (messages[0].content or "")
        return JudgeUnavailable("gone") if lost else judge()(messages)

    house.client.answer = answer
    tried(house, model)
    await house.answered("t1")
    await house.judge.step()
    assert (await house.record("t1")).verdict.hints == (HINT_WORDS,)
    assert len(model.asked) == 1


async def test_without_a_hint_nothing_is_tried(house):
    house.client.answer, model = lambda messages: r"\boxed{-1}", Model("I edit it.")
    tried(house, model)
    await house.answered("t1")
    await house.judge.step()
    assert model.asked == []
