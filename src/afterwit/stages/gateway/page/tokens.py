"""A response token by token: its text, how sure the policy was of it, which version sampled it, and how an
update pushed it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from afterwit.core.turn import Sampled

BROKEN = "\ufffd"
LONGEST_CHARACTER = 4
"""Tokens that one character takes at most."""
DOUBTS = (0.9, 0.5, 0.2, 0.05)
"""A token's doubt is the number of these probabilities that it had less than."""
PUSHES = (0.02, 0.2, 0.8)
"""A token's push is the number of these advantages that its own, without the sign, is above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One token, or the few that make one character."""

    text: str
    first: int
    """Its place in the response."""
    logprob: float
    """The sum, if they are several."""
    version: int
    forced: bool
    advantage: float | None = None
    """Of an update, the strongest if they are several tokens; None: not known."""

    @property
    def probability(self) -> float:
        """That the policy sampled it with."""
        return math.exp(min(self.logprob, 0.0))

    @property
    def doubt(self) -> int:
        """0: the policy was sure of it, to 4: it was unlikely."""
        return sum(self.probability < bound for bound in DOUBTS)

    @property
    def push(self) -> str:
        """`none`, or `up` or `down` with its strength from 1 to 3."""
        strength = sum(abs(self.advantage or 0.0) > bound for bound in PUSHES)
        return f"{'up' if (self.advantage or 0.0) > 0 else 'down'}{strength}" if strength else "none"


def tokens_of(
    sampled: Sampled,
    decode: Callable[[Sequence[int]], str],
    *,
    limit: int,
    advantages: Sequence[float] = (),
) -> list[Token]:
    """The first `limit` tokens, with the advantage of each id if they are known. Tokens that are a part of a
    character only are put together."""
    return [
        Token(
            text=text,
            first=start,
            logprob=math.fsum(sampled.logprobs[start:end]),
            version=sampled.versions[start],
            forced=all(sampled.forced[start:end]),
            advantage=max(advantages[start:end], key=abs, default=None),
        )
        for start, end, text in _pieces(sampled.ids[:limit], decode)
    ]


def _pieces(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[tuple[int, int, str]]:
    """Start, end and text of the shortest runs of ids that are whole characters."""
    start = 0
    while start < len(ids):
        ends = range(start + 1, min(start + LONGEST_CHARACTER, len(ids)) + 1)
        whole = (end for end in ends if BROKEN not in decode(ids[start:end]))
        end = next(whole, start + 1)
        yield start, end, decode(ids[start:end])
        start = end
