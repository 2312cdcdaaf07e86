"""A teacher that is asked for log-probs, because its weights are elsewhere: what it says, and its port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherScores:
    """A teacher's log-probs of one response of T ids, at temperature 1, over the whole vocabulary."""

    sampled: tuple[float, ...]
    """Of the response's ids, [T]."""
    ids: tuple[Ids, ...]
    """Its own top-K at each place, [T][K]: the likeliest first, of equals the lower id."""
    logprobs: tuple[tuple[float, ...], ...]
    """Of these ids."""

    def __post_init__(self) -> None:
        if not len(self.sampled) == len(self.ids) == len(self.logprobs):
            raise ValueError(
                f"{len(self.sampled)} sampled ids, but a top-K of {len(self.ids)} and {len(self.logprobs)}"
            )
        sizes = {len(row) for row in (*self.ids, *self.logprobs)}
        if len(sizes) > 1:
            raise ValueError(f"places have top-K of different sizes: {sorted(sizes)}")


class TeacherServer(Protocol):
    """A teacher on a server. Every method raises EngineError if it cannot be asked."""

    def open(self) -> None:
        """Find the server fit. SettingError, with what would help, if it is not. Again: nothing happens."""

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and response together that it scores. Opens it."""

    def score(self, rows: Sequence[tuple[Ids, Ids]]) -> list[TeacherScores]:
        """Of each response after its prompt, in order."""
