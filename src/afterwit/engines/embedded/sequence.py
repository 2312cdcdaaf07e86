"""One response in the making: what it may still say, how its next id is drawn, when it ends."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable

from afterwit.core.errors import RequestError
from afterwit.engines.embedded.sample import Draw
from afterwit.engines.port import Facts, Generate, Step

Deliver = Callable[[Step | Exception], None]


class ResponseSequence:
    """Owned by the worker's thread once it is submitted.

    `cached` counts the positions that the cache holds, `response_ids` is the response so far: once the prompt
    is read, the cache holds all of both but the last id.
    """

    def __init__(
        self, request: Generate, *, facts: Facts, scripted: tuple[int, ...], seed: int, deliver: Deliver
    ) -> None:
        """`seed` is used where the request has none. RequestError where the request cannot be served."""
        check(request, facts)
        sampling = request.sampling
        self.request = request
        self.deliver = deliver
        self.cached = 0
        self.response_ids: list[int] = []
        self._limit = min(sampling.max_tokens, facts.context_length - len(request.prompt_ids))
        self._end_ids = frozenset(sampling.stop_ids) | (frozenset() if sampling.ignore_eos else facts.end_ids)
        self._rng = random.Random(seed if sampling.seed is None else sampling.seed)
        self._forced = deque([(token, True) for token in request.forced_prefix])
        self._forced.extend((token, False) for token in scripted)
        self._prompt = frozenset(request.prompt_ids) if sampling.repetition_penalty != 1.0 else frozenset()
        self._counts: Counter[int] = Counter()

    @property
    def background(self) -> bool:
        return self.request.background

    @property
    def uncached(self) -> int:
        """Prompt tokens that the cache does not hold yet."""
        return len(self.request.prompt_ids) - self.cached

    def draw(self) -> Draw:
        """How the next id is drawn; takes one number from the sequence's generator."""
        return Draw(
            sampling=self.request.sampling,
            uniform=self._rng.random(),
            counts=self._counts,
            prompt=self._prompt,
            forced=self._forced[0][0] if self._forced else None,
        )

    def accept(self, token: int, logprob: float, version: int) -> Step:
        """Take the drawn id; returns the step to deliver."""
        forced = self._forced.popleft()[1] if self._forced else False
        self.response_ids.append(token)
        if self.request.sampling.penalised:
            self._counts[token] += 1
        ended = (
            "stop" if token in self._end_ids else "length" if len(self.response_ids) >= self._limit else None
        )
        return Step(ids=(token,), logprobs=(logprob,), versions=(version,), forced=(forced,), ended=ended)


def check(request: Generate, facts: Facts) -> None:
    """RequestError (400) where the request does not fit the model."""
    prompt, sampling = request.prompt_ids, request.sampling
    if not prompt:
        raise RequestError(400, "empty_prompt", "The prompt has no tokens.", param="messages")
    if len(prompt) >= facts.context_length:
        words = (
            f"The prompt has {len(prompt)} tokens; the context holds {facts.context_length}, answer included."
        )
        raise RequestError(400, "context_length_exceeded", words, param="messages")
    if sampling.max_tokens < 1:
        raise RequestError(400, "invalid_value", f"max_tokens is {sampling.max_tokens}.", param="max_tokens")
    _check_ids("messages", (*prompt, *request.forced_prefix), facts.vocabulary)
    _check_ids("logit_bias", tuple(token for token, _ in sampling.logit_bias), facts.vocabulary)


def _check_ids(param: str, ids: tuple[int, ...], vocabulary: int) -> None:
    if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
        words = f"A token id is outside the model's vocabulary of {vocabulary}."
        raise RequestError(400, "invalid_value", words, param=param)
