"""A judge without a model: a function decides each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from afterwit.judging.exam import EXAM, sample
from afterwit.judging.voting import Answer, evaluation_vote, hint_vote
from afterwit.turn import Message
from afterwit.verdict import Vote

HINT_MARK = "[HINT_START]"
HINT_WORDS = "Read the file before you edit it."
HINT = rf"\boxed{{1}}[HINT_START]{HINT_WORDS}[HINT_END]"


def asks_for_hint(messages: Sequence[Message]) -> bool:
    """Whether this is the question for a hint, not the one for a vote."""
    return any(HINT_MARK in (message.content or "") for message in messages)


def competent(messages: Sequence[Message]) -> str:
    """A judge that knows its trade, without a model."""
    if asks_for_hint(messages):
        return HINT
    complaints = ("That is far too long.", *(case.reply for case in (*EXAM, *sample()) if case.right < 0))
    said = messages[-1].content or ""
    return r"\boxed{-1}" if any(each in said for each in complaints) else r"\boxed{1}"


class FakeJudge:
    """Implements JudgeClient. `answer` gets the messages; an exception that it returns is raised, words are
    an answer that came to its end."""

    def __init__(self, answer: Callable[[Sequence[Message]], Answer | str | Exception] | None = None) -> None:
        self.answer = answer or (lambda messages: HINT if asks_for_hint(messages) else r"\boxed{-1}")
        self.asked: list[tuple[tuple[Message, ...], float, int, int]] = []
        self.most_at_once = 0
        self.weighed: list[str] = []
        """The questions on whether it is harmful to follow a hint."""
        self.harm: Answer | Exception = Answer(words=r"\boxed{accept}")
        self._now = 0
        self.hold: asyncio.Event | None = None
        """If it is set, calls wait for it."""
        self.called = asyncio.Event()

    @property
    def hints_asked(self) -> int:
        return sum(asks_for_hint(messages) for messages, *_ in self.asked)

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        if r"\boxed{refuse}" in (messages[0].content or ""):
            self.weighed.append(messages[-1].content or "")
            if isinstance(self.harm, Exception):
                raise self.harm
            return self.harm
        self.asked.append((tuple(messages), temperature, max_tokens, seed))
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        self.called.set()
        try:
            await asyncio.sleep(0)
            if self.hold is not None:
                await self.hold.wait()
            said = self.answer(messages)
        finally:
            self._now -= 1
        if isinstance(said, Exception):
            raise said
        return Answer(words=said) if isinstance(said, str) else said


def parse_evaluation(words: str) -> Vote:
    """The vote of a whole answer."""
    return evaluation_vote(Answer(words=words))


def parse_hint(words: str, said: Iterable[str], *, quote_words: int) -> Vote:
    """The vote of a whole answer."""
    return hint_vote(Answer(words=words), said, quote_words=quote_words)
