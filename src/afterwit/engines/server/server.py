"""The protocol of a model server, and a response that grows on one.

`Fleet` makes an engine of anything that implements the protocol. A server constrains an answer as a
whole or not at all: a response with a constraint is requested in parts.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import jsonschema_rs

from afterwit.engines.port import (
    LONGEST_MARK,
    MOST_SPACES,
    OPTIONS,
    Facts,
    Generate,
    Part,
    Step,
    TopLogprobs,
    guided_schema,
    schema_refused,
)
from afterwit.engines.server.client import Refused
from afterwit.engines.server.settings import AnyServer
from afterwit.errors import EngineError
from afterwit.turn import Sampling
from afterwit.weights.adapter import CONFIG, TENSORS

CUT = "cut"
"""`StreamChunk.ended` of a response that the server ended, not the model: the rest is requested again."""
CHECK_S = 30.0
"""Seconds for each request of a health check."""
UNLOAD_S = 10.0
"""Seconds for a request that frees memory, or ends a response."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    """`seed` and `max_tokens` are of this request; `stop` and `ignore_eos` are already in `end_ids`."""
    end_ids: frozenset[int]
    """Ids that end the response, each as its last id. The server's own end ids are ignored."""
    weights: str | None
    """The adapter's name; None: the base."""
    background: bool
    schema: str | None = None
    """A JSON schema that constrains the response from its first id on."""
    top: int | None = None
    """Return this many alternatives of each id; None: return none."""


def sampling_params(request: SampleRequest) -> dict[str, Any]:
    """The parameters that vLLM and SGLang have in common."""
    sampling, greedy = request.sampling, request.sampling.greedy
    params: dict[str, Any] = {
        "temperature": 0.0 if greedy else sampling.temperature,
        "top_p": 1.0 if greedy else sampling.top_p,
        "min_p": 0.0 if greedy else sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "stop_token_ids": sorted(request.end_ids),
    }
    if sampling.logit_bias:
        params["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    return params


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChunk:
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    tops: tuple[TopLogprobs, ...] = ()
    """One for each id if the request includes alternatives, else empty."""
    ended: str | None = None
    """"stop" (an end id, its last), "length", or CUT."""
    cached: int | None = None
    """Prompt tokens that were read for an earlier request; None: not reported."""
    unscored: tuple[bool, ...] = ()
    """Of each id, whether the server did not report its log-prob, which is 0 then; empty: it reported all."""

    def first(self, count: int) -> StreamChunk:
        """Its first ids. The end is kept only if all ids are."""
        if count >= len(self.ids):
            return self
        kept = {name: getattr(self, name)[:count] for name in ("ids", "logprobs", "tops", "unscored")}
        return replace(self, **kept, ended=None)

    def up_to(self, ends: Collection[int]) -> StreamChunk:
        """Its ids up to the first end id, which then ends it; all if there is none."""
        count = next((count for count, token in enumerate(self.ids, 1) if token in ends), None)
        return self if count is None else replace(self.first(count), ended="stop")

    def __add__(self, more: StreamChunk) -> StreamChunk:
        return StreamChunk(
            ids=self.ids + more.ids,
            logprobs=self.logprobs + more.logprobs,
            tops=self.tops + more.tops,
            ended=more.ended,
            cached=more.cached if self.cached is None else self.cached,
            unscored=self._flags() + more._flags() if self.unscored or more.unscored else (),
        )

    def _flags(self) -> tuple[bool, ...]:
        return self.unscored or (False,) * len(self.ids)


NOTHING = StreamChunk(ids=(), logprobs=())


def end_named(reason: str | None) -> str | None:
    """`StreamChunk.ended` from the reason that vLLM or SGLang gives; None: the response goes on."""
    return reason if reason in (None, "stop", "length") else CUT


def joined(chunks: Iterable[StreamChunk]) -> Iterator[StreamChunk]:
    """Chunks that arrived together as one, up to one that ends. An error follows the chunks before it."""
    whole: StreamChunk | None = None
    try:
        for chunk in chunks:
            whole = chunk if whole is None else whole + chunk
            if chunk.ended:
                break
    finally:
        if whole is not None:
            yield whole


def unfit(what: str, folder: Path, error: Exception) -> EngineError:
    """The error for an "adapter" or "weights" that a server refuses, with the server's own words."""
    fits, words = "does" if what == "adapter" else "do", str(error)
    if isinstance(error, Refused):
        words = error.answer.message
    return EngineError(f"The {what} in {folder} {fits} not fit the served model: {words}")


def top_logprobs(token: int, logprobs: Iterable[tuple[int, float]], top: int) -> TopLogprobs:
    """The log-prob of a token and its `top` alternatives, from log-probs in any order.

    KeyError if the token's own is missing.
    """
    values = dict(logprobs)
    best = sorted(values.items(), key=lambda each: (-each[1], each[0]))[:top]
    return TopLogprobs(values[token], tuple(each for each, _ in best), tuple(value for _, value in best))


class Server(Protocol):
    """A server of one model. Every method raises EngineUnavailable if the server does not answer.

    `weights` is an adapter's name, or None for the base.
    """

    async def check(self) -> str | None:
        """Return if the server can serve now: the label of its weights, if it keeps one.

        SettingError if it answers, but serves another model.
        """

    def sample(self, request: SampleRequest) -> AsyncGenerator[StreamChunk, None]:
        """Stream a response. Closing the generator ends it on the server.

        EngineUnavailable also if the adapter is unknown: the server was restarted.
        RequestRefused("constraint") for a schema that the server cannot enforce.
        """

    async def score(self, ids: Sequence[int], weights: str | None) -> list[float]:
        """Log-probs at temperature 1 of ids[1:], [len(ids) - 1]."""

    async def score_scaled(self, ids: Sequence[int], name: str, folder: Path, times: float) -> list[float]:
        """As `score`, by the adapter `name`, which is in a folder, scaled by `times`."""
        copy = f"{name}-taken-{times:g}-times"
        with amplified(folder, copy, times) as scaled:
            await self.load_adapter(copy, scaled)
            try:
                return await self.score(ids, copy)
            finally:
                await self.forget(copy)

    async def top_logprobs(
        self, ids: Sequence[int], weights: str | None, *, first: int, top: int
    ) -> list[TopLogprobs]:
        """Log-probs at temperature 1 of ids[first:] with the `top` most likely ids, [len(ids) - first]."""

    async def logprobs_at(
        self, ids: Sequence[int], weights: str | None, *, first: int, at: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        """Log-probs of the ids `at`, J for each position of ids[first:], [len(ids) - first][J].

        Only if `Fit.scores_given`.
        """
        raise EngineError("this server does not score ids that are given")

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Serve the adapter in a folder under a name of its own. EngineError if it does not fit."""

    async def unload_adapter(self, name: str) -> None:
        """Forget an adapter that no response uses."""

    async def forget(self, name: str) -> None:
        """Unload an adapter. One that stays loaded only costs memory."""
        try:
            await self.unload_adapter(name)
        except EngineError as error:
            log.info("the adapter %s could not be unloaded: %s", name, error)

    async def load_weights(self, folder: Path, label: str) -> None:
        """Replace the model's weights by those in a folder, drop the prefix cache, and set the label.

        Running responses end. EngineError if the weights do not fit.
        """

    async def close(self) -> None:
        """Close the connections. Running requests get EngineUnavailable."""


@contextmanager
def amplified(folder: Path, name: str, times: float) -> Iterator[Path]:
    """A temporary folder next to the adapter's, where the server can read it, with the adapter scaled.

    EngineError if it cannot be made.
    """
    copy = folder.parent / f".{name}"
    try:
        try:
            config = json.loads((folder / CONFIG).read_text())
            copy.mkdir(mode=0o700)
            (copy / CONFIG).write_text(json.dumps({**config, "lora_alpha": times * config["lora_alpha"]}))
            try:
                os.link((folder / TENSORS).resolve(), copy / TENSORS)
            except OSError:  # the disk has no hard links
                shutil.copyfile(folder / TENSORS, copy / TENSORS)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise EngineError(f"the adapter in {folder} cannot be copied for a probe: {error}") from error
        yield copy
    finally:
        with suppress(OSError):
            shutil.rmtree(copy)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """A server's command line, and the environment variables added to the inherited ones."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        settings: AnyServer,
        model: Sequence[str],
        flags: Sequence[str],
        *,
        host: str,
        port: int,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> ServerCommand:
        """The settings' program for a model at an address; their own flags come last, so that they count."""
        address = ("--host", host, "--port", str(port))
        arguments = (*settings.command, *model, *address, *flags, *settings.flags)
        return cls(arguments=arguments, environment=environment)


SEEDS = 2**31
"""Servers accept 32 bits with a sign, or more."""
BARRED = -100.0
LITERALS = ("true", "false", "null")

TextOf = Callable[[Sequence[int]], str]


class ServedResponse:
    """A request and its response so far.

    A constrained response begins unconstrained: a text that opens no call is dropped for JSON. The JSON is
    held back until it is whole, because a server cannot continue JSON.
    After an interruption the ids so far become part of the prompt, as do forced ones. Penalties then no
    longer count those ids, and a seed draws other ids than it would have.
    """

    def __init__(self, request: Generate, facts: Facts, text_of: TextOf) -> None:
        """The request fits the model. RequestRefused for a constraint that is not a JSON schema."""
        sampling, constraint = request.sampling, request.constraint
        self._request, self._facts, self._text_of = request, facts, text_of
        self._limit = min(sampling.max_tokens, facts.context_length - len(request.prompt_ids))
        self._ends = frozenset(sampling.stop_ids) | (frozenset() if sampling.ignore_eos else facts.end_ids)
        self._ids: list[int] = []
        self._requests, self._counted = 0, False
        self._cached: int | None = None
        """The cached tokens of the prompt, for the next step. The first request alone counts them."""
        self._held = NOTHING
        """Sampled ids that are not part of the response yet."""
        self.turns = False
        """The rest needs a new request, because a part with another constraint begins."""
        self._state = Part.FREE
        if constraint is None:
            return
        schema = guided_schema(constraint.schema, lenient=constraint.lenient)
        try:
            jsonschema_rs.meta.validate({name: each for name, each in schema.items() if name != OPTIONS})
        except (jsonschema_rs.ValidationError, ValueError) as error:
            raise schema_refused(str(getattr(error, "message", error))) from error
        self._schema = json.dumps(schema)
        self._marks = [mark for mark in constraint.openings if mark[0] and not begins_json(mark[0])]
        """The openings that prove that no JSON follows."""
        self._reasoned: tuple[int, ...] = ()
        self._end = constraint.starts_after
        self._state = Part.REASONING if self._end else self._start()

    def forced(self, version: int) -> Step | None:
        """The forced ids, cut at an end id or at the limit; None if the response has begun.

        Their log-prob is 0: no other id was possible.
        """
        ids = () if self._ids else self._request.forced_prefix[: self._limit]
        if not ids:
            return None
        ended = "length" if len(ids) == self._limit else None
        chunk = StreamChunk(ids=ids, logprobs=(0.0,) * len(ids), ended=ended).up_to(self._ends)
        return self._step(chunk, version, forced=True)

    def rest(self, weights: str | None) -> SampleRequest:
        """The request for the rest, or for its next part."""
        self.turns, self._held = False, NOTHING
        self._requests += 1
        request, sampling = self._request, self._request.sampling
        seed = None if sampling.seed is None else (sampling.seed + len(self._ids)) % SEEDS
        sampling = replace(sampling, max_tokens=self._limit - len(self._ids), seed=seed)
        if self._state is Part.REASONING:
            bars = tuple((token, BARRED) for token in sorted(self._facts.end_ids))
            sampling = replace(sampling, logit_bias=(*sampling.logit_bias, *bars))
        return SampleRequest(
            prompt_ids=(*request.prompt_ids, *self._ids),
            sampling=sampling,
            end_ids=self._ends,
            weights=weights,
            background=request.background or request.further,
            schema=self._schema if self._state is Part.JSON else None,
            top=request.top_logprobs,
        )

    def take(self, chunk: StreamChunk, version: int) -> Step | None:
        """The step of a chunk that `version` sampled; None if it adds nothing and ends nothing. `turns` may
        change.

        Raises EngineError for a chunk that no model can have sampled: it would be recorded, and trained on.
        """
        self._check(chunk)
        if chunk.cached is not None and self._requests <= 1 and not self._counted:
            self._counted, self._cached = True, chunk.cached
        forced = self._state is Part.JSON
        match self._state:
            case Part.REASONING:
                chunk = self._reason(chunk)
            case Part.START:
                chunk = self._look(chunk)
            case Part.JSON:
                self._held += chunk
                chunk = self._held if chunk.ended in ("stop", "length") else NOTHING
        ended = chunk.ended if chunk.ended != CUT else None
        if ended is None and len(self._ids) + len(chunk.ids) >= self._limit:
            ended = "length"
        if not chunk.ids and ended is None:
            return None
        return self._step(replace(chunk, ended=ended), version, forced=forced)

    def _step(self, chunk: StreamChunk, version: int, *, forced: bool) -> Step:
        cached, self._cached = self._cached, None
        self._ids.extend(chunk.ids)
        return Step(
            ids=chunk.ids,
            logprobs=chunk.logprobs,
            versions=(version,) * len(chunk.ids),
            forced=tuple(forced or each for each in chunk.unscored) or (forced,) * len(chunk.ids),
            top_logprobs=tuple(map(_possible, chunk.tops)),
            cache_version=version,
            cached=cached,
            ended=chunk.ended,
        )

    def _check(self, chunk: StreamChunk) -> None:
        ids, logprobs = chunk.ids, chunk.logprobs
        left = self._limit - len(self._ids) - len(self._held.ids)
        if not len(ids) == len(logprobs) <= left:
            counts = f"{len(ids)} ids and {len(logprobs)} log-probs where {left} were left to sample"
            raise EngineError(f"the server answered {counts}")
        if not all(type(token) is int and 0 <= token < self._facts.vocabulary for token in ids):
            raise EngineError("the server answered ids that the model does not have")
        if not all(isinstance(logprob, int | float) and isfinite(logprob) for logprob in logprobs):
            raise EngineError("the server answered log-probs that are not finite numbers")
        if len(chunk.tops) != (0 if self._request.top_logprobs is None else len(ids)):
            raise EngineError(f"the server answered alternatives of {len(chunk.tops)} of {len(ids)} ids")

    def _start(self) -> Part:
        return Part.START if self._marks else Part.JSON

    def _reason(self, chunk: StreamChunk) -> StreamChunk:
        for count, token in enumerate(chunk.ids, 1):
            self._reasoned = (*self._reasoned, token)[-LONGEST_MARK:]
            if self._end in self._text_of(self._reasoned):
                self._marks = [(begin, end) for begin, end in self._marks if not end]
                self._state, self.turns = self._start(), True
                return replace(chunk.first(count), ended=None)
        return chunk

    def _look(self, chunk: StreamChunk) -> StreamChunk:
        before, self._held = len(self._held.ids), self._held + chunk
        for count in range(before + 1, len(self._held.ids) + 1):
            text = self._text_of(self._held.ids[:count]).lstrip()
            found = next((end for begin, end in self._marks if text.startswith(begin)), None)
            if found == "":
                held, self._held, self._state = self._held, NOTHING, Part.FREE
                return held
            if found is not None:
                self._state, self._end, self._reasoned, self.turns = Part.REASONING, found, (), True
                return replace(self._held.first(count), ended=None)
            possible = any(begin.startswith(text) for begin, _ in self._marks)
            if not possible or (not text and count > MOST_SPACES):
                return self._drop()
        return self._drop() if chunk.ended not in (None, CUT) else NOTHING

    def _drop(self) -> StreamChunk:
        self._state, self._held, self.turns = Part.JSON, NOTHING, True
        return NOTHING


def _possible(top: TopLogprobs) -> TopLogprobs:
    """Without alternatives that truncation ruled out."""
    likely = sum(value > -inf for value in top.logprobs)
    return TopLogprobs(top.sampled, top.ids[:likely], top.logprobs[:likely])


def begins_json(mark: str) -> bool:
    """Whether JSON may begin like a marker, which then proves nothing about what follows."""
    mark = mark.lstrip()
    if mark.startswith("["):
        rest = mark[1:].lstrip()
        return not rest or rest.startswith("]") or begins_json(rest)
    literal = any(mark.startswith(word) or word.startswith(mark) for word in LITERALS)
    return literal or mark[0] in '{"-0123456789'
