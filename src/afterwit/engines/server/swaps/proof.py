"""That weights on a server are the ones they were: the log-probs of some ids, then and now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterwit.core.errors import EngineError

LENGTH = 24
CLOSE = {"float32": 1e-3}
"""Nats of mean |difference| between two scorings by the same weights, by what the server computes in."""
CLOSE_ELSE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Ids, and log-probs of ids[1:] by weights that were right."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    def check(self, now: Sequence[float], dtype: str) -> None:
        """EngineError unless `now` are the log-probs that the same weights give."""
        gap, most = self.gap(now), self.close(dtype)
        if not gap <= most:
            raise EngineError(
                f"the server's log-probs differ from those that these weights gave by {gap:.2g} on average, "
                f"and at most {most:g} is right: it does not serve the same weights"
            )

    def gap(self, now: Sequence[float]) -> float:
        """Mean |difference| to other log-probs of the same ids, in nats."""
        return sum(abs(old - new) for old, new in zip(self.logprobs, now, strict=True)) / len(self.logprobs)

    def close(self, dtype: str) -> float:
        """The largest gap between two scorings by the same weights."""
        return CLOSE.get(dtype, CLOSE_ELSE)


def sample_ids(vocabulary: int) -> tuple[int, ...]:
    """Ids spread over a vocabulary, alike each time."""
    return tuple((7919 * place + 17) % vocabulary for place in range(LENGTH))
