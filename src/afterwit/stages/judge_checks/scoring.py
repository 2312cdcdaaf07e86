"""The log-probs of an accepted answer, with the hint that its complaint drew and with another turn's."""

from __future__ import annotations

import asyncio
from statistics import fmean

from afterwit.core.judge_checks import HintLift, HintPair
from afterwit.core.judging import Placement, Rendering, hinted_prompts
from afterwit.core.turn import Turn
from afterwit.engines.port import Engine, Score, Weights
from afterwit.store import AsyncStore, Record, Store


class HintScoring:
    """Scores pairs with the engine that serves, by weights that never learned if it has them."""

    def __init__(self, engine: Engine, rendering: Rendering, placement: Placement) -> None:
        self._engine, self._rendering, self._placement = engine, rendering, placement
        self._weights = Weights.BASE if engine.capabilities.base_weights else Weights.LIVE

    @property
    def possible(self) -> bool:
        """Whether the engine scores at all."""
        return self._engine.capabilities.scored_ids > 0

    async def lift(self, store: AsyncStore, pair: HintPair) -> HintLift | None:
        """None if a turn's text is gone, was not sampled here, or leaves no room. Raises EngineError."""
        rows = await store.call(lambda each: _records(each, pair))
        built = await asyncio.to_thread(self._rows, *rows)
        if built is None:
            return None
        scored = await self._engine.score(built, top=1, weights=self._weights)
        plain, hinted, other = (fmean(each.logprobs) for each in scored)
        return HintLift(turn=pair.turn, plain=plain, hinted=hinted, other=other)

    def _rows(self, complained: Record, accepted: Record, other: Record) -> list[Score] | None:
        turn, answer = complained.turn, accepted.turn
        hints = [found.verdict.hints[:1] for found in (complained, other) if found.verdict is not None]
        told = [hint for each in hints for hint in each]
        if not (isinstance(turn, Turn) and isinstance(answer, Turn) and answer.sampled.ids) or len(told) < 2:
            return None
        room = self._engine.facts.context_length - len(answer.sampled.ids)
        prompts, _ = hinted_prompts(turn, told, self._rendering, self._placement, room)
        if len(prompts) < 2 or len(turn.prompt_ids) > room:
            return None
        behind = [turn.prompt_ids, *(ids for _, ids in prompts)]
        return [Score(prompt_ids=ids, response_ids=answer.sampled.ids) for ids in behind]


def _records(store: Store, pair: HintPair) -> tuple[Record, Record, Record]:
    return store.turn(pair.turn), store.turn(pair.accepted), store.turn(pair.other)
