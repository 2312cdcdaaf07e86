"""The engine port: token ids in, ids and log-probs out; new weights are loaded while it serves.

An engine handles tokens only. Rendering, detokenising, stop strings and tool calls belong to the gateway.
Below it is the port of a teacher on a server, which scores responses and never changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, StrEnum, auto
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from afterwit.errors import ContextExceeded, EngineError, RequestRefused
from afterwit.turn import SHARED, Basis, Sampling

LONGEST_MARK = 24
"""Tokens that the end of the reasoning takes at most."""
MOST_SPACES = 2
"""Tokens of white space before the JSON: models are trained to write some there."""
WHITE_SPACE = r"[ \t\r\n]{1,40}"
"""Between two tokens of JSON. Without a limit a small model may write white space for ever."""
LONGEST_MESSAGE = 200
"""Characters of a library's message about a schema that are passed on."""
OPTIONS = "x-guidance"
"""The schema key with options for llguidance, which servers with other libraries ignore."""
_DRAFT = re.compile(
    r"(?:http://json-schema\.org/draft-0[3-7]|https://json-schema\.org/draft/20(?:19-09|20-12))/schema#?"
)
_LOOKS_AROUND = re.compile(r"\(\?<?[=!]|\\[bB]")
"""In a pattern that no grammar can follow, such as that of Zod for an address of e-mail."""


CLOSED = "The engine was closed."
"""The fault of an engine after `close`."""

Ids = tuple[int, ...]
T = TypeVar("T")


class Weights(StrEnum):
    """The weights that answer a request."""

    LIVE = "live"
    BASE = "base"
    """The frozen weights that learning started from: the embedded judge uses them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The served model. Plain values: reading them needs no torch."""

    name: str
    model: str
    context_length: int
    """Tokens of prompt and response together."""
    vocabulary: int
    end_ids: frozenset[int]
    dtype: str
    """Precision of the computation: `float32`, `bfloat16`, `float16`."""
    fingerprint: str
    """Hash of tokenizer and base weights. A store is bound to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Features of an engine beyond sampling from live weights. Each field names the stage that reads it."""

    basis: Basis
    """The distribution that log-probs refer to. Gateway: recorded with each turn."""
    base_weights: bool = False
    """Serves the base weights next to the live ones. Judge: required by `judge.weights = "base"`."""
    forced_prefix: bool = False
    """A response can be made to begin with given ids. Gateway: required by `tool_choice = "required"`."""
    whole_weights: bool = False
    """`stage` accepts a folder of whole weights. Publisher: required by `learner.lora_rank = 0`."""
    adapters: bool = False
    """`stage` accepts a LoRA adapter in PEFT's format. Publisher: required by `learner.lora_rank` above 0."""
    own_adapters: bool = False
    """Serves several adapters at once, and unloads them. Publisher: required by `learner.adapters` other
    than "shared"."""
    constraint: bool = False
    """Constrains a response to a JSON schema. Gateway: required by JSON formats."""
    top_logprobs: int = 0
    """Most alternatives of a sampled token. Gateway: the log-probs that clients ask for."""
    scored_ids: int = 0
    """Most ids per position that `score` returns; 0: it cannot score. Hindsight: the teacher's rows."""
    scored_tau: bool = False
    """`score` accepts any temperature, not only 1. Hindsight: policies that sample at another."""
    longest_probe: int | None = None
    """Most ids that `probe` scores; None: the whole context. Publisher: cuts its probe to it."""
    remedies: Mapping[str, str] = field(default_factory=dict)
    """By the name of a missing capability: the setting or server flag that provides it, for error
    messages."""

    def lacks(self, promised: Capabilities) -> str | None:
        """The first field in which this is less than `promised`; None if there is none."""
        return next((name for name in LIMITS if _limit(self, name) < _limit(promised, name)), None)


LIMITS = tuple(each.name for each in fields(Capabilities) if each.name not in ("basis", "remedies"))


def common(every: Sequence[Capabilities]) -> Capabilities:
    """The capabilities that all engines share. Basis and remedies are those of the first."""
    least = {name: getattr(min(every, key=partial(_limit, name=name)), name) for name in LIMITS}
    return replace(every[0], **least)


def _limit(capabilities: Capabilities, name: str) -> float:
    value: float | None = getattr(capabilities, name)
    return inf if value is None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Constrains a response's text to JSON of a schema. Reasoning and tool calls stay free.

    Markers are texts, because a model may write them in one token or in several.
    """

    schema: str
    """A JSON schema, as JSON text."""
    lenient: bool = False
    """Ignore parts of the schema that the engine cannot enforce. Otherwise they raise
    RequestRefused("constraint")."""
    starts_after: str = ""
    """The JSON begins after this text, because the prompt left the reasoning open. "": at the first token."""
    reasoning: tuple[tuple[str, str], ...] = ()
    """Begin and end of reasoning that the response may open itself. The JSON begins after the end."""
    call_openings: tuple[str, ...] = ()
    """Texts that tool calls begin with. A response that begins with one of them is not constrained."""

    @property
    def openings(self) -> tuple[tuple[str, str], ...]:
        """Texts that the response may begin with in place of JSON, and the end of the reasoning that each
        opens; "": it is free."""
        return (*((begin, "") for begin in self.call_openings), *self.reasoning)


class Part(Enum):
    """The part of a constrained response that comes next."""

    REASONING = auto()
    """Free until the reasoning ends, except for ids that end the response: no JSON would follow."""
    START = auto()
    """JSON begins here, or one of `Constraint.openings`."""
    JSON = auto()
    FREE = auto()


def guided_schema(schema: str, *, lenient: bool) -> dict[str, Any]:
    """A JSON schema with our options. A client's own are removed, an unknown draft, and if lenient every
    pattern that looks around."""
    read = json.loads(schema, object_hook=_without_look_around if lenient else None)
    if not _DRAFT.fullmatch(str(read.get("$schema"))):
        read.pop("$schema", None)
    return {**read, OPTIONS: {"whitespace_pattern": WHITE_SPACE, "lenient": lenient}}


def _without_look_around(part: dict[str, Any]) -> dict[str, Any]:
    if isinstance(pattern := part.get("pattern"), str) and _LOOKS_AROUND.search(pattern):
        del part["pattern"]
    return part


def schema_refused(message: str, why: str = "The schema cannot be followed") -> RequestRefused:
    return RequestRefused(f"{why}: {message[:LONGEST_MESSAGE]}", field="constraint")


class TopLogprobs(NamedTuple):
    """Log-probs at one position.

    For a sampled token, the embedded engine reports the model's own distribution: at temperature 1, before
    penalties, truncation and constraint. A server reports the distribution of `Capabilities.basis`.
    """

    sampled: float
    """Of the token at this position. -inf: the weights rule it out."""
    ids: tuple[int, ...]
    """The most likely ids first; ties by lower id. As many as requested and available."""
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """One response to sample."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    forced_prefix: tuple[int, ...] = ()
    """Ids that the response must begin with: emitted first, flagged as forced."""
    constraint: Constraint | None = None
    """Applies after the forced prefix. Tokens sampled under it are flagged as forced."""
    top_logprobs: int | None = None
    """Return this many alternatives of each token, at most `Capabilities.top_logprobs`; None: return none."""
    weights: Weights = Weights.LIVE
    adapter: str = SHARED
    """Selects the adapter if `weights` is LIVE."""
    background: bool = False
    """Yields to requests that are not in the background."""
    further: bool = False
    """One more choice of a response that has another: yields too, so that `n = 16` holds up no one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next tokens of a response. `ended` is set on the last step only."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    """The weight version that sampled each token."""
    forced: tuple[bool, ...]
    """Given by the request, or sampled under its constraint: excluded from every loss."""
    top_logprobs: tuple[TopLogprobs, ...] = ()
    """One for each token if the request includes them, else empty."""
    cache_version: int | None = None
    """The oldest version whose keys and values these tokens attended to; None: unknown."""
    cached: int | None = None
    """Prompt tokens that were read for an earlier request, on one of the first steps; None: unknown."""
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
    """Log-probs of a response of T ids, over the whole vocabulary."""

    version: int
    """0 also of a teacher's server, whose weights never change."""
    logprobs: tuple[float, ...]
    """Of the response's own ids, [T], the first included. -inf: the weights rule it out."""
    top_ids: tuple[Ids, ...]
    """The most likely ids at each position, `[T][K]`, in falling order; ties by lower id."""
    top_logprobs: tuple[tuple[float, ...], ...]
    asked_ids: tuple[Ids, ...] = ()
    """Other ids that were requested at each position, `[T][J]`; (): none were."""
    asked: tuple[tuple[float, ...], ...] = ()
    """Log-probs of `asked_ids`. -inf: the weights rule it out."""

    def __post_init__(self) -> None:
        for places in map(len, (self.top_ids, self.top_logprobs, self.asked_ids, self.asked)):
            if places not in (0, len(self.logprobs)):
                raise ValueError(f"{len(self.logprobs)} ids, but log-probs at {places} places")

    @classmethod
    def of(cls, places: Sequence[TopLogprobs], version: int, **asked: Any) -> Self:
        """From the log-probs at each position."""
        return cls(
            version=version,
            logprobs=tuple(each.sampled for each in places),
            top_ids=tuple(each.ids for each in places),
            top_logprobs=tuple(each.logprobs for each in places),
            **asked,
        )


class Engine(Protocol):
    """Serves one model. Closing a generator cancels its request."""

    facts: Facts
    capabilities: Capabilities

    @property
    def version(self) -> int:
        """The version of the shared adapter that new tokens are sampled from."""

    def live(self, adapter: str) -> int | None:
        """The version of an adapter that new tokens are sampled from; None: not loaded, the base answers."""

    def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """Stream one response.

        Raises RequestRefused if the request does not fit the model, EngineUnavailable if the engine does not
        answer, EngineError if it fails.
        """

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """Log-probs of each response and of the `top` most likely ids per position, all by one version.

        Rows with a common beginning may share its computation. `top` is at most `Capabilities.scored_ids`.
        Raises RequestRefused for a row that does not fit the model, EngineUnavailable if the engine does not
        answer, EngineError if it fails.
        """

    @property
    def fault(self) -> str | None:
        """The reason why requests fail or wait now, as text; None if they are served. Gateway: `/readyz`."""

    @property
    def reduced(self) -> str | None:
        """The servers that are out while others serve, as text; None if all serve. Gateway: `/readyz`."""

    async def stage(self, version: int, folder: Path, *, adapter: str = SHARED) -> None:
        """Load a version's weights without serving them. EngineError if they do not fit."""

    async def probe(self, ids: Sequence[int], *, times: float = 1.0) -> list[float]:
        """Log-probs at temperature 1 of ids[1:] under the staged weights, [len(ids) - 1].

        A staged adapter is scaled by `times`: 0 is the base. Whole weights are not scaled.
        EngineError if nothing is staged or the ids cannot be scored.
        """

    async def promote(self) -> None:
        """Sample all further tokens of the staged weights' adapter from them. No request fails, or waits
        longer than one step. EngineError if nothing is staged."""

    async def unload(self, adapter: str) -> None:
        """Free the memory of an adapter other than the shared one. Its running responses end with it or with
        the base."""

    async def discard(self) -> None:
        """Drop the staged weights, if there are any."""

    async def close(self) -> None:
        """Stop and free everything. Requests get EngineUnavailable. May be called twice."""


def require_staged(staged: T | None) -> T:
    """The staged weights, or the server that has them. EngineError if there are none."""
    if staged is None:
        raise EngineError("No weights are staged.")
    return staged


def check_fits(request: Generate, facts: Facts) -> None:
    """Raise RequestRefused if the request does not fit the model."""
    prompt, sampling = request.prompt_ids, request.sampling
    if not prompt:
        raise RequestRefused("The prompt has no tokens.", field="prompt")
    if len(prompt) >= facts.context_length:
        raise ContextExceeded(
            f"The prompt has {len(prompt)} tokens; context and answer share {facts.context_length}.",
            field="prompt",
        )
    if sampling.max_tokens < 1:
        raise RequestRefused(f"max_tokens is {sampling.max_tokens}.", field="max_tokens")
    for ids in (prompt, request.forced_prefix):
        _check_ids("prompt", ids, facts.vocabulary)
    _check_ids("logit_bias", tuple(token for token, _ in sampling.logit_bias), facts.vocabulary)


def check_scores(rows: Sequence[Score], top: int, facts: Facts, capabilities: Capabilities) -> None:
    """Raise RequestRefused if a row does not fit the model, or the engine cannot score like this."""
    if top > capabilities.scored_ids:
        raise RequestRefused(
            f"This engine scores {capabilities.scored_ids} ids per position, not {top}.", field="top"
        )
    for row in rows:
        if len(row) > facts.context_length:
            raise ContextExceeded(
                f"Prompt and response have {len(row)} tokens; the context {facts.context_length}.",
                field="prompt",
            )
        if row.tau != 1.0 and not capabilities.scored_tau:
            raise RequestRefused(f"This engine scores at temperature 1 only, not {row.tau:g}.", field="tau")
        _check_ids("a row", (*row.prompt_ids, *row.response_ids), facts.vocabulary)


def _check_ids(field: str, ids: tuple[int, ...], vocabulary: int) -> None:
    if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
        raise RequestRefused(
            f"A token id of {field} is outside the model's vocabulary of {vocabulary}.", field=field
        )


ROUNDING = 1e-3
"""The most that a log-prob may be above 0: half precision sums probabilities to a little more than 1."""

LOWEST = -1e4
"""Lower values are not log-probs: no softmax gives them, and one would make an update's loss infinite."""


def is_logprob(value: float) -> bool:
    """Whether a number can be a log-prob, by rounding a little above 0."""
    return LOWEST <= value <= ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherRow:
    """The teacher's log-probs of K ids at one position, over its whole vocabulary."""

    ids: tuple[int, ...]
    """The sampled id, then the likeliest others, falling. No id occurs twice."""
    logprobs: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.ids or len(self.ids) != len(self.logprobs):
            raise ValueError(f"{len(self.ids)} ids but {len(self.logprobs)} log-probs")
        if len(set(self.ids)) != len(self.ids):
            raise ValueError("an id occurs twice in a teacher's row")
        if not all(map(is_logprob, self.logprobs)):
            raise ValueError("a teacher's row holds a log-prob that is not finite")
        if any(low > high for high, low in zip(self.logprobs[1:], self.logprobs[2:], strict=False)):
            raise ValueError("a teacher's row does not fall after the sampled id")


class TeacherServer(Protocol):
    """A teacher on a server. Every method raises EngineError if it cannot be asked."""

    def open(self) -> None:
        """Check once that the server is fit. SettingError with a remedy if it is not."""

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and response together that it scores. Opens the server."""

    def score(
        self, rows: Sequence[tuple[Ids, Ids]], at: Sequence[Sequence[Ids]] | None = None
    ) -> list[Scored]:
        """Log-probs of each response after its prompt, in order; `at` are further ids to score at each
        position."""
