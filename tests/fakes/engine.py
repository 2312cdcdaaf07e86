"""An engine without a model: it samples a script's tokens one by one, with made-up log-probs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

from afterwit.engines.port import (
    Capabilities,
    Facts,
    Generate,
    Score,
    Scored,
    Step,
    Weights,
    check_fits,
    check_scores,
)
from afterwit.errors import EngineError, EngineUnavailable
from afterwit.turn import SHARED, Basis

Script = Callable[[Generate], Sequence[int]]
"""The ids of a response after its forced prefix. An end id is added if it ends with none."""


class FakeEngine:
    """Implements the port. Events let a test hold it, fail it, and see what it was asked."""

    capabilities = Capabilities(
        basis=Basis.PROCESSED,
        base_weights=True,
        forced_prefix=True,
        whole_weights=True,
        adapters=True,
        own_adapters=True,
        scored_ids=20,
    )

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
            dtype="float32",
            fingerprint="fake",
        )
        self.version = 3
        self.asked: list[Generate] = []
        self.cancelled = 0
        self.scored: list[list[Score]] = []
        self.score_errors: list[Exception] = []
        """Raised by the next calls of `score`."""
        self.fail_after: int | None = None
        """Tokens after which it raises `error`."""
        self.error: Exception = EngineError("out of memory")
        self.fault: str | None = None
        self.reduced: str | None = None
        self.pause_after: int | None = None
        """Tokens after which it sets `paused` and waits for `resume`."""
        self.paused = asyncio.Event()
        self.resume = asyncio.Event()
        self._script, self._end_id, self._together = script, end_id, together
        self._staged: tuple[str, int] | None = None
        self.own: dict[str, int] = {}
        """The personal adapters that it has, and their versions."""
        self._open = True

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        self._check_open()
        check_fits(request, self.facts)
        self.asked.append(request)
        ids, ended = self._response(request)
        started = self._version(request.adapter)
        try:
            for start in range(0, len(ids), self._together):
                await self._may_go_on(start)
                last = start + self._together >= len(ids)
                places = range(start, min(start + self._together, len(ids)))
                yield Step(
                    ids=tuple(ids[place] for place in places),
                    logprobs=tuple(-0.25 * (place % 4) for place in places),
                    versions=(self._version(request.adapter),) * len(places),
                    forced=tuple(place < len(request.forced_prefix) for place in places),
                    cache_version=started,
                    ended=ended if last else None,
                )
        except (GeneratorExit, asyncio.CancelledError):
            self.cancelled += 1
            raise

    def _response(self, request: Generate) -> tuple[list[int], str]:
        """All ids of the response, and why it ends."""
        ids = [*request.forced_prefix, *self._script(request)]
        sampling = request.sampling
        ends = set(sampling.stop_ids) | (set() if sampling.ignore_eos else {self._end_id})
        if ids[-1:] != [self._end_id] and not sampling.ignore_eos:
            ids.append(self._end_id)
        limit = min(sampling.max_tokens, self.facts.context_length - len(request.prompt_ids))
        first_end = next((place for place, token in enumerate(ids) if token in ends), len(ids))
        return (ids[: first_end + 1], "stop") if first_end < limit else (ids[:limit], "length")

    async def _may_go_on(self, sampled: int) -> None:
        if self.fail_after is not None and sampled >= self.fail_after:
            raise self.error
        if self.pause_after is not None and sampled >= self.pause_after:
            self.paused.set()
            await self.resume.wait()
        await asyncio.sleep(0)
        self._check_open()

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """The longer the prompt, the likelier the sampled id; the ids after it are the next likely."""
        self._check_open()
        check_scores(rows, top, self.facts, self.capabilities)
        self.scored.append(list(rows))
        if self.score_errors:
            raise self.score_errors.pop(0)
        await asyncio.sleep(0)
        return [self._scored(row, top) for row in rows]

    def _scored(self, row: Score, top: int) -> Scored:
        size = len(row.response_ids)
        others = [
            tuple((token + at) % self.facts.vocabulary for at in range(top)) for token in row.response_ids
        ]
        return Scored(
            version=self.version,
            logprobs=(-1.0 / len(row.prompt_ids),) * size,
            top_ids=tuple(others),
            top_logprobs=(tuple(-1.0 / len(row.prompt_ids) - at for at in range(top)),) * size,
        )

    def live(self, adapter: str) -> int | None:
        return self.version if adapter == SHARED else self.own.get(adapter)

    def _version(self, adapter: str) -> int:
        return self.live(adapter) or 0

    async def stage(self, version: int, folder: Path, *, adapter: str = SHARED) -> None:
        self._staged = None
        if not (folder / "config.json").exists():
            raise EngineError(f"there are no weights in {folder}")
        self._staged = adapter, version

    async def probe(self, ids: Sequence[int], *, times: float = 1.0) -> list[float]:
        self._check_staged()
        return [-0.5] * (len(ids) - 1)

    async def promote(self) -> None:
        self._check_open()
        adapter, version = self._check_staged()
        if adapter == SHARED:
            self.version = version
        else:
            self.own[adapter] = version
        self._staged = None

    async def unload(self, adapter: str) -> None:
        self.own.pop(adapter, None)

    async def discard(self) -> None:
        self._staged = None

    async def close(self) -> None:
        self._open = False

    def _check_staged(self) -> tuple[str, int]:
        if self._staged is None:
            raise EngineError("No weights are staged.")
        return self._staged

    def _check_open(self) -> None:
        if not self._open:
            raise EngineUnavailable("The engine was closed.")
