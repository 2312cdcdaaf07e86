"""The reward of a rollout: its tests' result, how few turns it took, and which tools it used."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

PASS = 0.8
"""The correctness from which on a task counts as passed."""

WRITES = frozenset({"write_file", "patch"})
"""The tools that write a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardWeights:
    """How much each part counts."""

    correctness: float = 0.7
    efficiency: float = 0.15
    tool_usage: float = 0.15

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be between 0 and 1, not {getattr(self, name)}")

    def reward(self, *, correctness: float, efficiency: float, tool_usage: float) -> Reward:
        """The reward of these parts."""
        parts = {"correctness": correctness, "efficiency": efficiency, "tool_usage": tool_usage}
        total = sum(getattr(self, name) * value for name, value in parts.items())
        return Reward(**parts, total=min(max(total, 0.0), 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The parts, each in [0, 1], and their weighted sum, kept in [0, 1]."""

    correctness: float
    efficiency: float
    tool_usage: float
    total: float

    @property
    def passed(self) -> bool:
        return self.correctness >= PASS


def efficiency(turns: int, max_turns: int) -> float:
    """1 for up to three turns, 0.8 up to half the allowed turns, 0.5 up to three quarters, else 0.2."""
    if turns <= 3:
        return 1.0
    if turns <= max_turns / 2:
        return 0.8
    return 0.5 if turns <= 0.75 * max_turns else 0.2


def tool_usage(tools: Collection[str]) -> float:
    """1 for the terminal and a file written, 0.6 for the terminal alone, 0.3 for any other, 0 for none."""
    if "terminal" in tools:
        return 1.0 if WRITES & set(tools) else 0.6
    return 0.3 if tools else 0.0
