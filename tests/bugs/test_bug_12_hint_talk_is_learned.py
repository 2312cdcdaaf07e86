"""The policy learned to speak of hints ("as the hint says") that nobody but its teacher had seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

from afterwit.apps.config import Settings
from afterwit.apps.loop import Loop
from afterwit.core.hint_rules import speaks_of_hints
from afterwit.core.message import Message
from afterwit.core.verdict import Question
from afterwit.store import Record
from tests.fakes.judge import asks_for_hint
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
    ) -> str:
        if not asks_for_hint(messages):
            return r"\boxed{-1}"
        return rf"\boxed{{1}} [HINT_START]{next(self._hints)}[HINT_END]"


async def judged(settings: Settings, home: Path, judge: Talker) -> Record:
    """A turn that was asked for, answered and judged, over HTTP."""
    async with Loop(settings, home, ("gateway", "judge"), judge=judge) as loop:
        assert loop.url is not None
        agent, asked = client(loop.url), {"role": "user", "content": "What do the notes say?"}
        first = await agent.chat.completions.create(model="afterwit", messages=[asked])
        said = {"role": "assistant", "content": first.choices[0].message.content}
        again = {"role": "user", "content": "No, look into them."}
        await agent.chat.completions.create(model="afterwit", messages=[asked, said, again])

        async def found() -> Record | None:
            record = await loop.store.call(lambda store: store.turn(first.id.removeprefix("chatcmpl-")))
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
