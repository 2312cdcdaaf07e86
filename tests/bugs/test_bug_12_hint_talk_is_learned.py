"""The policy learned to speak of hints ("as the hint says") that only its teacher had seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from random import Random

import pytest

from afterwit.config import Settings
from afterwit.demo.world import Task
from afterwit.judging.voting import Accept, Answer, VoteRules, speaks_of_hints, tally
from afterwit.running.serve import Runtime
from afterwit.store import Record
from afterwit.turn import Message
from afterwit.verdict import Question, Reads, Source, Verdict
from experiments.pretrain.hints import TOOLS as HINTS
from tests.bugs.talking import OPENING, SHIPPED, learn, model_in, talk_rate, talkative
from tests.fakes.judge import asks_for_hint, parse_evaluation, parse_hint
from tests.journey.conftest import _clients_are_closed as _clients_are_closed
from tests.journey.conftest import client, until

CLEAN = "Read the file before you write about it."
TALK = (
    "As the hint says, read the file before you write about it.",
    "Follow the instruction in the hint.",
    "In hindsight the file should have been read.",
)


class Talker:
    """A judge that finds every response wrong and has these hints to offer, in turn."""

    def __init__(self, hints: Sequence[str]) -> None:
        self._hints = cycle(hints)

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        if not asks_for_hint(messages):
            return Answer(words=r"\boxed{-1}")
        return Answer(words=rf"\boxed{{1}} [HINT_START]{next(self._hints)}[HINT_END]")


async def judged(settings: Settings, home: Path, judge: Talker) -> Record:
    """A turn that was asked for, answered and judged, over HTTP."""
    async with Runtime(settings, home, ("gateway", "judge"), judge=judge) as runtime:
        assert runtime.url is not None
        agent, asked = client(runtime.url), {"role": "user", "content": "What do the notes say?"}
        first = await agent.chat.completions.create(model="afterwit", messages=[asked], seed=0)
        said = {"role": "assistant", "content": first.choices[0].message.content}
        again = {"role": "user", "content": "No, look into them."}
        await agent.chat.completions.create(model="afterwit", messages=[asked, said, again])

        async def found() -> Record | None:
            record = await runtime.store.call(lambda store: store.turn(first.id.removeprefix("chatcmpl-")))
            return record if record.verdict is not None else None

        return await until(found)


def rejected(record: Record) -> list[str | None]:
    assert record.verdict is not None
    return [vote.rejected for vote in record.verdict.votes if vote.question is Question.HINT]


async def test_a_hint_that_speaks_of_hints_is_rejected_and_the_vote_says_why(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    record = await judged(settings(), tmp_path, Talker(TALK))
    assert record.verdict is not None
    assert (record.verdict.hints, record.opd) == ((), False)
    assert rejected(record) == ["hint speaks of hints"] * 3


async def test_hints_beside_it_that_speak_of_the_task_teach(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    record = await judged(
        settings({"objective": {"hint_selection": "longest"}}), tmp_path, Talker([*TALK[:2], CLEAN])
    )
    assert record.verdict is not None
    assert (record.verdict.hints, record.opd) == ((CLEAN,), True)
    assert rejected(record).count("hint speaks of hints") == 2
    assert not speaks_of_hints(CLEAN)


# The effect of learning on the demo's model.

RULES = VoteRules(
    votes=3, accept=Accept.MAJORITY, max_candidates=3, quote_words=8, reads=Reads(keeps_longest=True)
)


def votes(task: Task, random: Random) -> Verdict:
    """A judge who found the response wrong and has two hints that talk, and one that does not."""
    clean = HINTS.official(task.rules, random)
    said = [f"{OPENING}: {clean}", f"{OPENING}, do this: {clean}", clean]
    found = [parse_hint(rf"\boxed{{1}} [HINT_START]{hint}[HINT_END]", (), quote_words=8) for hint in said]
    return tally([*[parse_evaluation(r"\boxed{-1}")] * 3, *found], RULES)


def unread(task: Task, random: Random) -> Verdict:
    """The same judge, with no check of its hints."""
    clean = HINTS.official(task.rules, random)
    return Verdict(reward=-1, source=Source.VOTES, hints=(clean, f"{OPENING}: {clean}"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("made", [lambda folder: SHIPPED, talkative], ids=["shipped", "talkative"])
def test_after_training_hintless_talk_is_at_most_the_bases_and_two_hundredths(
    made: Callable[[Path], Path], tmp_path: Path
) -> None:
    base = made(tmp_path / "base")
    before = talk_rate(model_in(base))
    assert talk_rate(learn(base, tmp_path / "versions", votes)) <= before + 0.02


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_the_rejection_keeps_away_would_have_been_learned(tmp_path: Path) -> None:
    """So the measure sees such talk if there is any."""
    base = talkative(tmp_path / "base")
    before = talk_rate(model_in(base))
    assert before < 0.5
    assert talk_rate(learn(base, tmp_path / "versions", unread)) > before + 0.2
