"""Reads texts by a model's log-probs: those of an engine, or of an endpoint that gives them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from math import fsum
from typing import TYPE_CHECKING, Protocol

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Engine, Score, Weights
from afterwit.errors import (
    EngineError,
    EngineUnavailable,
    JudgeRefused,
    JudgeUnavailable,
    RequestError,
)
from afterwit.judging.polarity import ASKED, REPLIES, RESULTS, Borders, LogProbs, Subject, borders
from afterwit.turn import Conversation, Message

if TYPE_CHECKING:
    from afterwit.judging.http_judge import HttpJudge

LONGEST_READ = 1000
"""Characters of a text that are read."""
AT_ONCE = 32
"""Texts in one call of the engine; calls at once of an endpoint."""


class Reader(Protocol):
    """Reads texts of a few subjects."""

    @property
    def subjects(self) -> Sequence[Subject]:
        """People's replies and, if it reads them, tools' results."""

    async def logprobs(self, texts: Sequence[str], subject: Subject) -> list[LogProbs]:
        """For each text, the log-probs of the messages that the subject lists.

        Raises EngineUnavailable or JudgeUnavailable if the model does not answer now, else EngineError,
        JudgeRefused or RequestError if it cannot read this.
        """


async def measured(reader: Reader, subject: Subject) -> Borders | None:
    """The borders on the shipped texts; None if the model cannot read them.

    Raises EngineUnavailable or JudgeUnavailable if it does not answer now.
    """
    try:
        shipped = {kind: await reader.logprobs(texts, subject) for kind, texts in subject.texts.items()}
    except (EngineUnavailable, JudgeUnavailable):
        raise
    except (EngineError, JudgeRefused, RequestError):
        return None
    return await asyncio.to_thread(borders, shipped, subject.parts)


class EngineReader:
    """Reads with the served model: its frozen weights if it has any."""

    subjects = (REPLIES, RESULTS)

    def __init__(self, engine: Engine, renderer: Renderer) -> None:
        self._engine, self._renderer = engine, renderer
        self._weights = Weights.BASE if engine.capabilities.base_weights else Weights.LIVE

    async def logprobs(self, texts: Sequence[str], subject: Subject) -> list[LogProbs]:
        if not self._engine.capabilities.scored_ids:
            raise EngineError("this engine does not score texts")
        found: list[LogProbs] = []
        for at in range(0, len(texts), AT_ONCE):
            rows = [await asyncio.to_thread(self._rows, text, subject) for text in texts[at : at + AT_ONCE]]
            flat = [row for each in rows for row in each]
            scored = await self._engine.score(flat, top=1, weights=self._weights)
            sums = iter([fsum(each.logprobs) for each in scored])
            found += [tuple(islice(sums, len(each))) for each in rows]
        return found

    def _rows(self, text: str, subject: Subject) -> list[Score]:
        rows = []
        for before, said in subject.rows(text[:LONGEST_READ]):
            conversation = Conversation(
                messages=alternating(before), template_args={"enable_thinking": False}
            )
            prompt_ids = self._renderer.prompt_ids(conversation)
            rows.append(Score(prompt_ids=prompt_ids, response_ids=self._renderer.encode(said)))
        return rows


class EndpointReader:
    """Reads with the model at `judge.url`, by the first words of its answers."""

    subjects = (ASKED, RESULTS)

    def __init__(self, endpoint: HttpJudge) -> None:
        self._endpoint, self._room = endpoint, asyncio.Semaphore(AT_ONCE)

    async def logprobs(self, texts: Sequence[str], subject: Subject) -> list[LogProbs]:
        async def read(text: str) -> LogProbs:
            async with self._room:
                parts = [
                    await self._endpoint.first_words(alternating(ask.of(text[:LONGEST_READ])), ask.answers)
                    for ask in subject.asks
                ]
            return tuple(value for part in parts for value in part)

        if not texts:
            return []
        first = await read(texts[0])  # an endpoint without log-probs gets one request
        return [first, *await asyncio.gather(*map(read, texts[1:]))]


def alternating(said: Sequence[str]) -> tuple[Message, ...]:
    """The messages of a person and an assistant in turn."""
    return tuple(
        Message(role="assistant" if at % 2 else "user", content=words) for at, words in enumerate(said)
    )
