"""A server that answers nonsense: the request fails as the engine's fault, and is not recorded."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from afterwit.engines.port import Score, TopLogprobs, Weights
from afterwit.engines.server.server import SampleRequest, StreamChunk
from afterwit.errors import EngineError
from tests.engines.server.pretend import PretendServer, engine_over
from tests.engines.talk import ask, say


class Nonsense(PretendServer):
    """Sends `said` after a first token that is in order, or raises it if it is an exception."""

    def __init__(self, said: Any) -> None:
        super().__init__()
        self._said = said

    async def sample(self, ask: SampleRequest) -> AsyncGenerator[StreamChunk, None]:
        yield StreamChunk(ids=(7,), logprobs=(-0.5,))
        if isinstance(self._said, Exception):
            raise self._said
        yield self._said


NONSENSE = {
    "an id beyond the vocabulary": StreamChunk(ids=(100,), logprobs=(-0.5,)),
    "a negative id": StreamChunk(ids=(-1,), logprobs=(-0.5,)),
    "an id that is not a number": StreamChunk(ids=("7",), logprobs=(-0.5,)),  # type: ignore[arg-type] # as JSON may
    "more ids than log-probs": StreamChunk(ids=(7, 8), logprobs=(-0.5,)),
    "a log-prob of NaN": StreamChunk(ids=(7,), logprobs=(float("nan"),)),
    "no log-prob": StreamChunk(ids=(7,), logprobs=(None,)),  # type: ignore[arg-type] # as above
    "more than was asked for": StreamChunk(ids=(7,) * 50, logprobs=(-0.5,) * 50),
    "an event without choices": KeyError("choices"),
    "an event that is a list": TypeError("list indices must be integers"),
}


@pytest.mark.parametrize("said", NONSENSE.values(), ids=NONSENSE)
async def test_nonsense_is_the_engines_fault(base: Path, said: Any) -> None:
    async with engine_over(Nonsense(said), base) as engine:
        with pytest.raises(EngineError, match="the server answered"):
            await say(engine, ask(range(3, 13), max_tokens=12))


class WithoutScores(PretendServer):
    """Answers a request for scores with JSON of another form."""

    async def top_logprobs(
        self, ids: Sequence[int], weights: str | None, *, first: int, top: int
    ) -> list[TopLogprobs]:
        raise KeyError("prompt_logprobs")


async def test_scores_of_an_unknown_form_are_the_engines_fault(base: Path) -> None:
    async with engine_over(WithoutScores(), base) as engine:
        with pytest.raises(EngineError, match="the server answered in an unknown form"):
            await engine.score([Score(prompt_ids=(5,), response_ids=(7,))], top=1, weights=Weights.LIVE)
