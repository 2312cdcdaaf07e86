"""The protocol of a model server. `ServerEngine` makes an engine of anything that implements it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from afterwit.engines.port import TopLogprobs
from afterwit.errors import RequestRefused
from afterwit.turn import Sampling

CUT = "cut"
"""`StreamChunk.ended` of a response that the server ended, not the model: the rest is requested again."""

LONGEST_MESSAGE = 200
"""Characters of a server's message about a schema that are passed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """Ids to sample after a prompt."""

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
    """The next ids of a response."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    tops: tuple[TopLogprobs, ...] = ()
    """One for each id if the request includes alternatives, else empty."""
    ended: str | None = None
    """"stop" (an end id, its last), "length", or CUT."""
    cached: int | None = None
    """Prompt tokens that were read for an earlier request; None: not reported."""

    def first(self, count: int) -> StreamChunk:
        """Its first ids. The end is kept only if all ids are."""
        if count >= len(self.ids):
            return self
        kept = {name: getattr(self, name)[:count] for name in ("ids", "logprobs", "tops")}
        return replace(self, **kept, ended=None)

    def __add__(self, more: StreamChunk) -> StreamChunk:
        return StreamChunk(
            ids=self.ids + more.ids,
            logprobs=self.logprobs + more.logprobs,
            tops=self.tops + more.tops,
            ended=more.ended,
            cached=more.cached if self.cached is None else self.cached,
        )


NOTHING = StreamChunk(ids=(), logprobs=())


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


def schema_refused(message: str) -> RequestRefused:
    return RequestRefused(f"The schema cannot be followed: {message[:LONGEST_MESSAGE]}", field="constraint")


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

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Serve the adapter in a folder under a name of its own. EngineError if it does not fit."""

    async def unload_adapter(self, name: str) -> None:
        """Forget an adapter that no response uses."""

    async def load_weights(self, folder: Path, label: str) -> None:
        """Replace the model's weights by those in a folder, drop the prefix cache, and set the label.

        Running responses end. EngineError if the weights do not fit.
        """

    async def close(self) -> None:
        """Close the connections. Running requests get EngineUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """A server's command line, and the environment variables added to the inherited ones."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
