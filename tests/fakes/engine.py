"""An engine without a model: it says what a script tells it to, token by token, with made-up log-probs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

from afterwit.core.errors import EngineError
from afterwit.core.turn import Basis
from afterwit.engines.port import Facts, Generate, Step

Script = Callable[[Generate], Sequence[int]]
"""The ids of a response after its forced prefix; an end id is added where it ends with none."""


class FakeEngine:
    """Implements the port. Events let a test hold it, fail it, and see what it was asked."""

    def __init__(
        self,
        script: Script,
        *,
        end_id: int,
        vocabulary: int,
        context_length: int = 2048,
        model: str = "tiny",
        together: int = 1,
    ) -> None:
        self.facts = Facts(
            name="fake",
            model=model,
            context_length=context_length,
            vocabulary=vocabulary,
            end_ids=frozenset({end_id}),
            basis=Basis.PROCESSED,
            dtype="float32",
            fingerprint="fake",
        )
        self.version = 3
        self.asked: list[Generate] = []
        self.cancelled = 0
        self.fail_after: int | None = None
        """Tokens after which it raises `error`."""
        self.error: Exception = EngineError("out of memory")
        self.pause_after: int | None = None
        """Tokens after which it waits for `resume`; `paused` says that it does."""
        self.paused = asyncio.Event()
        self.resume = asyncio.Event()
        self._script, self._end_id, self._together = script, end_id, together

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        self.asked.append(request)
        forced = request.forced_prefix
        ids = [*forced, *self._script(request)]
        if ids[-1:] != [self._end_id] and not request.sampling.ignore_eos:
            ids.append(self._end_id)
        limit = request.sampling.max_tokens
        ended = "stop" if len(ids) <= limit else "length"
        ids = ids[:limit]
        try:
            for start in range(0, len(ids), self._together):
                await self._may_go_on(start)
                piece = ids[start : start + self._together]
                last = start + self._together >= len(ids)
                yield self._step(piece, start, len(forced), ended if last else None)
        except GeneratorExit:
            self.cancelled += 1
            raise
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def _step(self, ids: Sequence[int], start: int, forced: int, ended: str | None) -> Step:
        places = range(start, start + len(ids))
        return Step(
            ids=tuple(ids),
            logprobs=tuple(-0.25 * (place % 4) for place in places),
            versions=(self.version,) * len(ids),
            forced=tuple(place < forced for place in places),
            ended=ended,
        )

    async def _may_go_on(self, sampled: int) -> None:
        if self.fail_after is not None and sampled >= self.fail_after:
            raise self.error
        if self.pause_after is not None and sampled >= self.pause_after:
            self.paused.set()
            await self.resume.wait()
        await asyncio.sleep(0)

    async def stage(self, version: int, folder: Path) -> None:
        raise NotImplementedError

    async def probe(self, ids: Sequence[int]) -> list[float]:
        raise NotImplementedError

    async def promote(self) -> None:
        raise NotImplementedError

    async def discard(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass
