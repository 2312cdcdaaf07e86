"""The engine port: ids in, ids and log-probs out; weights staged, probed and promoted while it serves.

An engine knows tokens only. Rendering, detokenising, stop strings and tool calls belong to the gateway.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from afterwit.core.turn import Basis, Sampling


class Weights(StrEnum):
    """Which weights answer."""

    LIVE = "live"
    BASE = "base"
    """The frozen starting weights: the embedded judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What an engine says of itself."""

    name: str
    model: str
    context_length: int
    """Tokens of prompt and response together."""
    vocabulary: int
    end_ids: frozenset[int]
    """Ids that end a turn."""
    basis: Basis
    dtype: str
    """What it computes in: `float32`, `bfloat16`, `float16`."""
    fingerprint: str
    """Hash of tokenizer and base weights; a store is bound to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """One response to sample."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    forced_prefix: tuple[int, ...] = ()
    """Ids that the response must begin with: emitted first, flagged as forced."""
    weights: Weights = Weights.LIVE
    background: bool = False
    """Yields to requests that are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next tokens of a response; `ended` on the last step only."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    forced: tuple[bool, ...]
    ended: str | None = None
    """"stop" (an end id, included in `ids`) or "length"."""


class Engine(Protocol):
    """What the stages need. Closing a generator cancels its request."""

    facts: Facts

    @property
    def version(self) -> int:
        """The version that new tokens are sampled from."""

    def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """Stream one response. Raises EngineUnavailable when the engine does not answer."""

    async def stage(self, version: int, folder: Path) -> None:
        """Load a version's weights beside the live ones, serving nobody. EngineError if they do not fit."""

    async def probe(self, ids: Sequence[int]) -> list[float]:
        """Log-probs at temperature 1 of ids[1:] under the staged weights, [len(ids) - 1]."""

    async def promote(self) -> None:
        """Route every further decode step to the staged weights; no request fails or waits over one step."""

    async def discard(self) -> None:
        """Drop the staged weights."""

    async def close(self) -> None:
        """Stop and free everything."""
