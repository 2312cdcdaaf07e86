"""The engine port: ids in, ids and log-probs out; weights are staged, probed and promoted while it serves.

An engine knows tokens only. Rendering, detokenising, stop strings and tool calls belong to the gateway.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from afterwit.adapters import SHARED
from afterwit.turn import Basis, Sampling


class Weights(StrEnum):
    """Which weights answer."""

    LIVE = "live"
    BASE = "base"
    """The frozen weights that learning started from: the embedded judge uses them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What an engine says about its model. Plain values: reading them needs no torch."""

    name: str
    """The engine's kind."""
    model: str
    context_length: int
    """Tokens of prompt and response together."""
    vocabulary: int
    end_ids: frozenset[int]
    """Ids that end a turn."""
    dtype: str
    """What it computes in: `float32`, `bfloat16`, `float16`."""
    fingerprint: str
    """Hash of tokenizer and base weights; a store is bound to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do beyond sampling from live weights. Each field names the stage that asks."""

    basis: Basis
    """The distribution its log-probs are of. Gateway: recorded with each turn."""
    base_weights: bool
    """It serves the base weights beside the live ones. Judge: `judge.weights = "base"` needs it."""
    forced_prefix: bool
    """A response can be made to begin with given ids. Gateway: `tool_choice = "required"` needs it."""
    whole_weights: bool
    """`stage` takes a folder of whole weights. Publisher: `learner.lora_rank = 0` needs it."""
    adapters: bool
    """`stage` takes a LoRA adapter in PEFT's format. Publisher: `learner.lora_rank` above 0 needs it."""
    own_adapters: bool = False
    """It serves several adapters beside each other, and takes one away again. Publisher: `learner.adapters`
    other than "shared" needs it."""
    constraint: bool = False
    """It keeps a response's text to a JSON schema. Gateway: JSON formats need it."""
    top_logprobs: int = 0
    """Most alternatives of each token that it tells. Gateway: the log-probs that clients ask for."""
    scored_ids: int = 0
    """Most ids at each place that `score` tells; 0: it does not score. Hindsight: the teacher's rows."""
    scored_tau: bool = False
    """`score` takes any temperature; else 1 alone. Hindsight: policies that sample at another."""
    longest_probe: int | None = None
    """Most ids that `probe` scores; None: as many as the context holds. Publisher: cuts its probe to it."""
    remedies: Mapping[str, str] = field(default_factory=dict)
    """What would give a capability that is missing, by its name: a setting, a flag of the server. Whoever
    refuses for its lack says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """The form of a response's text: JSON that a schema allows. Reasoning and tool calls are free.

    The marks are texts, because a model may write them in one token or in several.
    """

    schema: str
    """A JSON schema, as JSON text."""
    lenient: bool = False
    """Ignore what the engine cannot follow of the schema. Otherwise that is RequestRefused("constraint")."""
    starts_after: str = ""
    """The form begins behind this: the prompt left the reasoning open. "": it begins with the first token."""
    reasoning: tuple[tuple[str, str], ...] = ()
    """Beginning and end of reasoning that the response may open by itself: the form begins behind the end."""
    call_openings: tuple[str, ...] = ()
    """What tool calls begin with. A text that begins with one of them has no form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLogprobs:
    """What the model would have said at one place.

    The embedded engine tells its own distribution: at temperature 1, before penalties, truncation and
    constraint. A server tells the distribution of `Capabilities.basis`.
    """

    sampled: float
    """Of the id that was sampled."""
    ids: tuple[int, ...]
    """The most likely ids, falling; as many as the request asks for and the distribution has."""
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """One response to sample."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    forced_prefix: tuple[int, ...] = ()
    """Ids that the response must begin with: emitted first, flagged as forced."""
    constraint: Constraint | None = None
    """The form of what follows the forced prefix. Tokens sampled under it are flagged as forced."""
    top_logprobs: int | None = None
    """Tell the alternatives of each token, this many; None: do not. At most `Capabilities.top_logprobs`."""
    weights: Weights = Weights.LIVE
    adapter: str = SHARED
    """Whose live weights answer, if these do."""
    background: bool = False
    """It yields to requests that are not in the background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next tokens of a response; `ended` is set on the last step only."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    """The weight version that sampled each token."""
    forced: tuple[bool, ...]
    """Given by the request, or sampled under its constraint: in no loss."""
    top_logprobs: tuple[TopLogprobs, ...] = ()
    """One for each token if the request asks, else empty."""
    cache_version: int | None = None
    """The oldest version whose keys and values these tokens attended to; None: the engine does not know."""
    ended: str | None = None
    """"stop" (an end id, included in `ids`) or "length"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A response to score after a prompt."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    tau: float = 1.0
    """The log-probs are of logits / tau, over the whole vocabulary."""

    def __post_init__(self) -> None:
        if not self.prompt_ids or not self.response_ids:
            prompt, response = len(self.prompt_ids), len(self.response_ids)
            raise ValueError(f"{prompt} prompt ids and {response} response ids: neither may be 0")

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What weights say of a response: one entry for each of its ids, the first included."""

    version: int
    logprobs: tuple[float, ...]
    """Of the response's own ids. -inf: the weights rule it out."""
    top_ids: tuple[tuple[int, ...], ...]
    """The likeliest ids at each place, falling; equal ones by the lower id."""
    top_logprobs: tuple[tuple[float, ...], ...]


class Engine(Protocol):
    """What the stages need. Closing a generator cancels its request."""

    facts: Facts
    capabilities: Capabilities

    @property
    def version(self) -> int:
        """The version of the shared adapter that new tokens are sampled from."""

    def live(self, adapter: str) -> int | None:
        """The version of an adapter that new tokens are sampled from; None: it is not loaded, and the base
        answers in its place."""

    def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """Stream one response.

        Raises RequestRefused if the request does not fit the model, EngineUnavailable if the engine does not
        answer, EngineError if it fails.
        """

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """Log-probs of each response, and of the `top` likeliest ids at each place, by one version.

        Rows that begin alike may share their work. `top` is at most `Capabilities.scored_ids`.
        Raises RequestRefused for a row that does not fit the model, EngineUnavailable if the engine does not
        answer, EngineError if it fails.
        """

    @property
    def fault(self) -> str | None:
        """Why requests fail or wait now, for people; None if they are served. Gateway: `/readyz`."""

    @property
    def reduced(self) -> str | None:
        """What is out while requests are served, for people; None: nothing. Gateway: `/readyz`."""

    async def stage(self, version: int, folder: Path, *, adapter: str = SHARED) -> None:
        """Load a version's weights beside the live ones, serving nobody. EngineError if they do not fit."""

    async def probe(self, ids: Sequence[int], *, times: float = 1.0) -> list[float]:
        """Log-probs at temperature 1 of ids[1:] under the staged weights, [len(ids) - 1].

        A staged adapter is taken `times` times: 0 is the base. Weights that are no adapter stay as they are.
        EngineError if nothing is staged or the ids cannot be scored.
        """

    async def promote(self) -> None:
        """Sample every further token of the staged weights' adapter from them. No request fails or waits over
        one step.

        EngineError if nothing is staged.
        """

    async def unload(self, adapter: str) -> None:
        """Free the memory of an adapter that is not the shared one. Responses of it that are under way end
        with it or with the base."""

    async def discard(self) -> None:
        """Drop the staged weights, if there are any."""

    async def close(self) -> None:
        """Stop and free everything. Requests get EngineUnavailable. Closing twice is closing once."""
