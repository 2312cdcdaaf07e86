"""The turn: one action of the policy, exactly as it was sampled, or as another program recorded it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from afterwit.adapters import SHARED
from afterwit.message import Conversation, Message
from afterwit.verdict import Flag, Verdict

GREEDY_BELOW = 0.05
"""A temperature under this samples the mode: the turn trains by OPD only, at temperature 1."""


class Kind(StrEnum):
    """Whether a turn belongs to the conversation a person follows."""

    MAIN = "main"
    SIDE = "side"
    """A title, a summary, a background review: served, not trained on."""
    UNKNOWN = "unknown"
    """One of several children of a parent, of which the main one is not known yet. Does not train."""


class Basis(StrEnum):
    """The distribution that a log-prob is of."""

    PROCESSED = "processed"
    """After temperature and truncation: the one that was sampled from."""
    RAW = "raw"
    """The model's own, at temperature 1."""


def is_greedy(temperature: float) -> bool:
    """Whether sampling at this temperature takes the mode."""
    return temperature < GREEDY_BELOW


def scoring_temperature(temperature: float) -> float:
    """tau: what the logits of a turn sampled at this temperature are divided by; 1 for a greedy turn."""
    return 1.0 if is_greedy(temperature) else temperature


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the response was sampled. The defaults are OpenAI's."""

    max_tokens: int
    limit_asked: bool = False
    """Whether the client set `max_tokens`, below the limit that applies without it."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0: no limit."""
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False

    @property
    def greedy(self) -> bool:
        return is_greedy(self.temperature)

    @property
    def truncated(self) -> bool:
        """Whether part of the vocabulary could not be sampled."""
        return self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0

    @property
    def penalised(self) -> bool:
        """Whether a penalty or a bias changed the logits."""
        penalties = (self.presence_penalty, self.frequency_penalty, self.repetition_penalty - 1.0)
        return any(penalties) or bool(self.logit_bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The sampled tokens, including the end-of-turn token if it was sampled."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """pi_b: log-probs that the engine reported for these ids."""
    versions: tuple[int, ...]
    """The weight version that sampled each token."""
    forced: tuple[bool, ...]
    """Tokens that a grammar or the caller forced: never in a loss."""
    basis: Basis = Basis.PROCESSED
    cache_version: int | None = None
    """The oldest version whose keys and values these tokens attended to; None: the engine did not say."""

    @property
    def oldest_version(self) -> int:
        """The version that sampled the oldest token; 0 for an empty response."""
        return min(set(self.versions), default=0)

    def __post_init__(self) -> None:
        for name in ("logprobs", "versions", "forced"):
            if len(getattr(self, name)) != len(self.ids):
                raise ValueError(f"{len(self.ids)} ids but {len(getattr(self, name))} {name}")


class Finish(StrEnum):
    """Why a response ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CLIENT_LEFT = "client_left"


def source_of(scope: str) -> str:
    """The key in a scope, which is who teaches. A client can choose its family's name, but not its source."""
    return scope.rpartition("/")[0] or scope


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """The conversation, the response and their place in a session: a Turn or an ImportedTurn."""

    id: str
    """Lower-case letters and digits, globally unique; response ids end with it."""
    scope: str
    """API key and client family. Sessions never cross scopes."""
    session: str
    parent: str | None
    kind: Kind
    created: float
    """Seconds since the epoch."""
    model: str
    conversation: Conversation
    message: Message
    """The response as the client received it."""
    finish: Finish
    teaches: bool = True
    """Whether the caller's key has the scope `teach`."""

    @property
    def source(self) -> str:
        """The key that it came with."""
        return source_of(self.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(RecordedTurn):
    """One choice of one response that was sampled here: only such a turn can train."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    sampled: Sampled
    adapter: str = SHARED
    """The adapter that sampled it and learns from it. Its versions are that adapter's, or the base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTurn(RecordedTurn):
    """A response that was recorded elsewhere: its text is known, its tokens are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTurn:
    """One turn with its verdict. `rl` and `opd`: the terms of the loss that it carries."""

    turn: Turn
    verdict: Verdict
    rl: bool
    opd: bool
    group_rewards: tuple[int, ...] = ()
    """The rewards of all judged turns with this prompt, zeros included; (): not looked up."""

    def __post_init__(self) -> None:
        if not (self.rl or self.opd):
            raise ValueError(f"turn {self.turn.id} carries no term: it is skipped, not sampled")
        if self.opd and not self.verdict.hints:
            raise ValueError(f"turn {self.turn.id} has an OPD term but no hint")
        if self.rl and self.verdict.reward == 0:
            raise ValueError(f"turn {self.turn.id} has an RL term but reward 0")


class Waiting(NamedTuple):
    """A judged turn that waits for an update: the facts by which the next batch is chosen."""

    seq: int
    """The order of arrival, which names the turn in the store."""
    turn: str
    """Its id."""
    session: str
    since: float
    """When it was judged."""
    oldest_version: int
    """The version that sampled its oldest token."""
    ended: bool
    """Whether its session has ended, as far as the store can know."""
    source: str = ""
    """The key that it came with."""
    flags: tuple[Flag, ...] = ()
    accepted: bool = False
    """Whether a person accepted its verdict."""
    rewarded: bool = True
    """Whether it carries a reward term."""
    adapter: str = SHARED
    """The adapter that sampled it and learns from it."""
