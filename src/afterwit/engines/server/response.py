"""How far a response has come: what it has said, when it ends, what is left to ask for. No I/O."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite

from afterwit.core.errors import EngineError
from afterwit.engines.port import Facts, Generate, Step, TopLogprobs
from afterwit.engines.server.form import Form, TextOf
from afterwit.engines.server.server import CUT, Ask, Piece, Place

SEEDS = 2**31
"""Servers take 32 bits with a sign, or more."""


class ServedResponse:
    """A request and its response so far.

    A response that was interrupted goes on: what it has said is then part of the prompt, as are ids that it
    must begin with. Penalties no longer count those ids, and a seed draws other ids than it would have.
    """

    def __init__(self, request: Generate, facts: Facts, text_of: TextOf) -> None:
        """The request fits the model. RequestRefused for a form that cannot be followed."""
        self._request = request
        sampling = request.sampling
        self._limit = min(sampling.max_tokens, facts.context_length - len(request.prompt_ids))
        self._ends = frozenset(sampling.stop_ids) | (frozenset() if sampling.ignore_eos else facts.end_ids)
        self._vocabulary = facts.vocabulary
        self._said: list[int] = []
        constraint = request.constraint
        self._form = None if constraint is None else Form(constraint, text_of, facts.end_ids)

    @property
    def turns(self) -> bool:
        """Whether the rest must be asked for anew, because a part of another form begins."""
        return self._form is not None and self._form.turns

    def forced(self, version: int) -> Step | None:
        """The ids that the response must begin with, cut at an end id or at the limit; None if it has begun.

        Their log-prob is 0: no other id could be taken.
        """
        ids = () if self._said else self._request.forced_prefix[: self._limit]
        end = next((place for place, token in enumerate(ids) if token in self._ends), None)
        if end is not None:
            ids = ids[: end + 1]
        if not ids:
            return None
        ended = "stop" if end is not None else "length" if len(ids) == self._limit else None
        self._said.extend(ids)
        return Step(
            ids=ids,
            logprobs=(0.0,) * len(ids),
            versions=(version,) * len(ids),
            forced=(True,) * len(ids),
            cache_version=version,
            ended=ended,
        )

    def rest(self, weights: str | None) -> Ask:
        """What is left to ask for."""
        sampling = self._request.sampling
        seed = None if sampling.seed is None else (sampling.seed + len(self._said)) % SEEDS
        ask = Ask(
            prompt_ids=(*self._request.prompt_ids, *self._said),
            sampling=replace(sampling, max_tokens=self._limit - len(self._said), seed=seed),
            end_ids=self._ends,
            weights=weights,
            background=self._request.background,
            top=self._request.top_logprobs,
        )
        return ask if self._form is None else self._form.ask(ask)

    def take(self, piece: Piece, version: int) -> Step | None:
        """The step of a piece that `version` sampled; None if it says nothing and ends nothing.

        Raises EngineError for a piece that no model sampled: it would be recorded, and trained on.
        """
        self._check(piece)
        kept = False
        if self._form is not None:
            taken = self._form.take(piece)
            piece, kept = taken.piece, taken.kept
        self._said.extend(piece.ids)
        ended = piece.ended if piece.ended != CUT else None
        if ended is None and len(self._said) >= self._limit:
            ended = "length"
        if not piece.ids and ended is None:
            return None
        return Step(
            ids=piece.ids,
            logprobs=piece.logprobs,
            versions=(version,) * len(piece.ids),
            forced=(kept,) * len(piece.ids),
            top_logprobs=tuple(map(_told, piece.tops)),
            cache_version=version,
            ended=ended,
        )

    def _check(self, piece: Piece) -> None:
        ids, logprobs, left = piece.ids, piece.logprobs, self._limit - len(self._said) - self._held
        if not len(ids) == len(logprobs) <= left:
            counts = f"{len(ids)} ids and {len(logprobs)} log-probs where {left} were left to sample"
            raise EngineError(f"the server answered {counts}")
        if not all(type(token) is int and 0 <= token < self._vocabulary for token in ids):
            raise EngineError("the server answered ids that the model does not have")
        if not all(isinstance(logprob, int | float) and isfinite(logprob) for logprob in logprobs):
            raise EngineError("the server answered log-probs that are no finite numbers")
        if len(piece.tops) != (0 if self._request.top_logprobs is None else len(ids)):
            raise EngineError(f"the server answered alternatives of {len(piece.tops)} of {len(ids)} ids")

    @property
    def _held(self) -> int:
        return 0 if self._form is None else self._form.holds


def _told(place: Place) -> TopLogprobs:
    """The alternatives that the distribution has: what was cut off is none."""
    likely = sum(value > -inf for value in place.top_logprobs)
    return TopLogprobs(
        sampled=place.logprob, ids=place.top_ids[:likely], logprobs=place.top_logprobs[:likely]
    )
