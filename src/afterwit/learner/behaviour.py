"""How a response was sampled, as far as an update reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from afterwit.core.turn import Basis, Turn, scoring_temperature


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Tuples are as long as the response."""

    forced: tuple[bool, ...]
    """Tokens that are in no loss: nobody sampled them from the policy."""
    logprobs: tuple[float, ...] | None
    """log pi_b; None: they are not known, so nothing is corrected by them."""
    basis: Basis = Basis.PROCESSED
    temperature: float = 1.0
    truncated: bool = False
    """Part of the vocabulary could not be sampled."""
    older_cache: bool = False
    """Some tokens attended to keys and values of an older version than the one that sampled them."""

    @classmethod
    def of_turn(cls, turn: Turn) -> Self:
        """As the engine reported it."""
        sampled = turn.sampled
        return cls(
            forced=sampled.forced,
            logprobs=sampled.logprobs,
            basis=sampled.basis,
            temperature=turn.sampling.temperature,
            truncated=turn.sampling.truncated,
            older_cache=sampled.cache_version not in (None, sampled.oldest_version),
        )

    @property
    def tau(self) -> float:
        """The temperature of the response's log-probs."""
        return scoring_temperature(self.temperature)
