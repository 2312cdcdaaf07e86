"""Rows to score and how they are grouped into passes. Pure."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from transformers import PreTrainedModel

from afterwit.learning.settings import LearnerSettings
from afterwit.packing.attention import unsupported_reason
from afterwit.packing.pack import WORTH, groups, ratio
from afterwit.weights.widened import widened

log = logging.getLogger(__name__)


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
        """The ids that the model reads: all but the last, which predicts nothing that is scored."""
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


class MicroBatch(NamedTuple):
    """Rows, by index, that go through the model together."""

    chosen: list[int]
    packed: bool


@dataclass(frozen=True, slots=True)
class Packing:
    """Whether an update may pack."""

    allowed: bool

    @classmethod
    def of(cls, settings: LearnerSettings, *models: PreTrainedModel | None) -> Packing:
        """Allowed if the setting and every model permit it. A model that does not is logged once."""
        if settings.packing == "off":
            return NEVER
        reasons = [
            reason
            for model in models
            if model is not None and (reason := unsupported_reason(model, widened=widened))
        ]
        for reason in reasons:
            _say(f"rows are not packed, but run one sequence each: {reason}")
        return cls(not reasons)

    def cut(self, rows: Sequence[Row], limit: int, *, in_order: bool = False) -> list[MicroBatch]:
        """The rows as passes. `in_order`: in the order of the rows."""
        if not self._pays(rows):
            lengths, cut = [len(row) for row in rows], micro_batches_in_order if in_order else micro_batches
            return [MicroBatch(each, False) for each in cut(lengths, limit)]
        order = list(range(len(rows)))
        if not in_order:
            order.sort(key=lambda index: rows[index].inputs)
        found = groups([rows[index].inputs for index in order], limit)
        return [MicroBatch([order[at] for at in each], True) for each in found]

    def _pays(self, rows: Sequence[Row]) -> bool:
        if not (self.allowed and len(rows) > 1):
            return False
        if token_ratio(rows) >= WORTH:
            return True
        _say(f"a batch whose rows share little (token ratio below {WORTH}) runs one sequence at a time")
        return False


NEVER = Packing(False)


def token_ratio(rows: Sequence[Row]) -> float:
    """Tokens of the rows, divided by the tokens that run if all sharing is used."""
    return ratio([row.inputs for row in rows])


@cache
def _say(words: str) -> None:
    """Log a message, once per process."""
    log.info("learn: %s", words)
