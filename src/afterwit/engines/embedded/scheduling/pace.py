"""How much of the prompts is read between two decode steps. Pure: it counts work, never time.

The unit of work is one prompt token read at an empty context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST = 8
"""Tokens of the smallest piece: each forward reads all keys and values, however few its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The limits on reading prompts."""

    chunk: int
    """Most work between two decode steps."""
    beside: int
    """Work that all prompts may cost per decode step, on average, while other responses decode."""
    attention_span: float = math.inf
    """Positions of context to attend to which costs as much as the rest of the forward, per token."""

    def work(self, tokens: int, context: int) -> float:
        """The work of a forward that reads this many tokens after `context` positions."""
        spans = context / self.attention_span
        return tokens + (tokens + LEAST) * spans

    def tokens(self, work: float, context: int) -> int:
        """How many tokens can be read after `context` positions with this much work; may be 0."""
        spans = context / self.attention_span
        return max(0, int((work - LEAST * spans) / (1 + spans)))
