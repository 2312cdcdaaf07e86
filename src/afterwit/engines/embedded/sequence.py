"""One response in the making: its ids so far, how its next id is drawn, when it ends."""

from __future__ import annotations

import random
from array import array
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from afterwit.engines.embedded.cache import Beginning, Row
from afterwit.engines.embedded.grammar import Guide
from afterwit.engines.embedded.sample import Draw, Drawn
from afterwit.engines.port import Facts, Generate, Step
from afterwit.errors import RequestRefused
from afterwit.weights.lora import Factors

Deliver = Callable[[Step | Exception], None]


@dataclass(slots=True, eq=False)
class Served:
    """The active weights of an adapter, shared by its running responses and updated at a swap.

    Keys and values are cached under it.
    """

    version: int
    factors: Factors | None = None
    """Added to the module; None: the module alone."""


class ResponseSequence:
    """A request and its response. Owned by the worker's thread once it is submitted.

    `cached` counts the positions with keys and values. Once its first id is drawn, these are the prompt and
    the response without its last id.
    """

    def __init__(
        self,
        request: Generate,
        *,
        facts: Facts,
        scripted: tuple[int, ...],
        seed: int,
        deliver: Deliver,
        guide: Guide | None = None,
    ) -> None:
        """The request fits the model. `seed` is used if it has none. `guide` enforces its constraint."""
        sampling = request.sampling
        self.request = request
        self.background = request.background
        self.deliver = deliver
        self.prompt = array("i", request.prompt_ids)
        self.response_ids: list[int] = []
        self.served = Served(0)
        """Set by the runner that accepts it."""
        self.row: Row
        """Keys and values of its text up to some position. Set when it is started."""
        self.start = 0
        """The number of positions that it attends to in its row. The others are in the batch, see `Batch`."""
        self.cached = 0
        self.read = 0
        """Prompt tokens that were read for it alone."""
        self.owed = 0.0
        """Work on its prompt beyond its share, see `PrefillBudget`."""
        self._limit = min(sampling.max_tokens, facts.context_length - len(request.prompt_ids))
        goes_on = sampling.ignore_eos and guide is None
        self._end_ids = frozenset(sampling.stop_ids) | (frozenset() if goes_on else facts.end_ids)
        self._guide = guide
        self._rng = random.Random(seed if sampling.seed is None else sampling.seed)
        self._given = deque([(token, True) for token in request.forced_prefix])
        self._given.extend((token, False) for token in scripted)
        """Ids that replace drawn ones, and whether each is flagged as forced."""
        self._in_prompt = frozenset(request.prompt_ids) if sampling.repetition_penalty != 1.0 else frozenset()
        self._counts: Counter[int] = Counter()
        self._cache_version: int | None = None

    @property
    def uncached(self) -> int:
        """Prompt tokens without keys and values."""
        return len(self.prompt) - self.cached

    @property
    def last_id(self) -> int:
        """The id that its next forward reads, once all before it is cached."""
        return self.response_ids[-1] if self.response_ids else self.prompt[-1]

    @property
    def beginning(self) -> Beginning | None:
        """The positions that it attends to in its row, if any."""
        return Beginning(self.row, self.start) if self.start else None

    @property
    def text(self) -> array[int]:
        """The ids of its cached positions."""
        return (self.prompt + array("i", self.response_ids))[: self.cached]

    def extend_cache(self, tokens: int) -> None:
        """Count positions that were found or added in the cache under its present weights."""
        self.cached += tokens
        if self._cache_version is None:
            self._cache_version = self.served.version

    @property
    def refusal(self) -> RequestRefused | None:
        """Why it cannot go on, if its constraint has become too much work."""
        return None if self._guide is None else self._guide.refusal

    @property
    def awaited(self) -> Future[Any] | None:
        """The mask that its next id must wait for; None: the id can be drawn."""
        return None if self._given or self._guide is None else self._guide.awaited

    def draw(self) -> Draw:
        """How the next id is drawn. Takes one number from the sequence's generator."""
        return Draw(
            sampling=self.request.sampling,
            uniform=self._rng.random(),
            counts=self._counts,
            prompt=self._in_prompt,
            forced=self._given[0][0] if self._given else None,
            mask=None if self._given or self._guide is None else self._guide.mask,
            top_logprobs=self.request.top_logprobs,
        )

    def accept(self, drawn: Drawn) -> Step:
        """Append the drawn id and advance the constraint. Returns the step to deliver."""
        token, forced = drawn.id, False
        stopped, full = token in self._end_ids, len(self.response_ids) + 1 >= self._limit
        if self._given:
            forced = self._given.popleft()[1]
        elif self._guide is not None:
            forced = self._guide.masks
            if not stopped:
                self._guide.accept(token)
        self.response_ids.append(token)
        if self.request.sampling.penalised:
            self._counts[token] += 1
        return Step(
            ids=(token,),
            logprobs=(drawn.logprob,),
            versions=(self.served.version,),
            forced=(forced,),
            top_logprobs=() if drawn.top is None else (drawn.top,),
            cache_version=self._cache_version,
            cached=len(self.prompt) - self.read if len(self.response_ids) == 1 else None,
            ended="stop" if stopped else "length" if full else None,
        )
