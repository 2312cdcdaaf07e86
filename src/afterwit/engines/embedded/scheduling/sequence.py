"""One response that is being made: what it may still say, how its next id is drawn, when it ends."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable

from afterwit.engines.embedded.sample import Draw
from afterwit.engines.port import Facts, Generate, Step

Deliver = Callable[[Step | Exception], None]


class ResponseSequence:
    """A request and its response. Owned by the worker's thread once it is submitted.

    `cached` counts the positions that its cache holds. Once the prompt is read, these are the prompt and the
    response without its last id.
    """

    def __init__(
        self, request: Generate, *, facts: Facts, scripted: tuple[int, ...], seed: int, deliver: Deliver
    ) -> None:
        """The request fits the model. `seed` is used if it has none."""
        sampling = request.sampling
        self.request = request
        self.deliver = deliver
        self.cached = 0
        self.debt = 0.0
        """Work spent on its prompt ahead of its share, see `pace`."""
        self.response_ids: list[int] = []
        self._limit = min(sampling.max_tokens, facts.context_length - len(request.prompt_ids))
        self._end_ids = frozenset(sampling.stop_ids) | (frozenset() if sampling.ignore_eos else facts.end_ids)
        self._rng = random.Random(seed if sampling.seed is None else sampling.seed)
        self._given = deque([(token, True) for token in request.forced_prefix])
        self._given.extend((token, False) for token in scripted)
        """Ids that take the place of drawn ones, and whether each is flagged as forced."""
        self._prompt = frozenset(request.prompt_ids) if sampling.repetition_penalty != 1.0 else frozenset()
        self._counts: Counter[int] = Counter()
        self._cache_version: int | None = None

    @property
    def background(self) -> bool:
        return self.request.background

    @property
    def uncached(self) -> int:
        """Prompt tokens that are not read yet."""
        return len(self.request.prompt_ids) - self.cached

    def extend_cache(self, tokens: int, version: int) -> None:
        """Count positions that were added to the cache under a version's weights."""
        self.cached += tokens
        if self._cache_version is None:
            self._cache_version = version

    def draw(self) -> Draw:
        """How the next id is drawn; takes one number from the sequence's generator."""
        return Draw(
            sampling=self.request.sampling,
            uniform=self._rng.random(),
            counts=self._counts,
            prompt=self._prompt,
            forced=self._given[0][0] if self._given else None,
        )

    def accept(self, token: int, logprob: float, version: int) -> Step:
        """Append the drawn id; returns the step to deliver."""
        forced = self._given.popleft()[1] if self._given else False
        self.response_ids.append(token)
        if self.request.sampling.penalised:
            self._counts[token] += 1
        return Step(
            ids=(token,),
            logprobs=(logprob,),
            versions=(version,),
            forced=(forced,),
            cache_version=self._cache_version,
            ended=self._ended(token),
        )

    def _ended(self, token: int) -> str | None:
        if token in self._end_ids:
            return "stop"
        return "length" if len(self.response_ids) >= self._limit else None
