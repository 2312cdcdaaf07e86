"""Rows to score and how they are grouped into passes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A prompt and the response that is scored after it."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.prompt or not self.response:
            raise ValueError(
                f"{len(self.prompt)} prompt ids and {len(self.response)} response ids: neither may be 0"
            )

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)

    @property
    def inputs(self) -> tuple[int, ...]:
        """What the model reads: all ids except the last, which predicts nothing that is scored."""
        return (*self.prompt, *self.response[:-1])

    @property
    def first(self) -> int:
        """Index of the input that predicts the response's first id."""
        return len(self.prompt) - 1


def micro_batches(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Indices grouped so that a group padded to its longest holds at most `limit` tokens.

    Longest first, so that little is padded. A row longer than the limit is a group of its own.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= limit:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def micro_batches_in_order(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """As `micro_batches`, in the given order."""
    groups: list[list[int]] = []
    longest = 0
    for index, length in enumerate(lengths):
        longest = max(longest, length)
        if groups and (len(groups[-1]) + 1) * longest <= limit:
            groups[-1].append(index)
        else:
            groups.append([index])
            longest = length
    return groups
