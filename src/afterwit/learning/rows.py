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


def micro_batches(lengths: Sequence[int], limit: int, *, in_order: bool = False) -> list[list[int]]:
    """Indices grouped so that a group padded to its longest holds at most `limit` tokens.

    Longest first, so that little is padded, or in the given order. A row longer than the limit is a group of
    its own.
    """
    groups, longest = list[list[int]](), 0
    order = range(len(lengths)) if in_order else sorted(range(len(lengths)), key=lambda at: -lengths[at])
    for index in order:
        longest = max(longest, lengths[index])
        if groups and (len(groups[-1]) + 1) * longest <= limit:
            groups[-1].append(index)
        else:
            groups.append([index])
            longest = lengths[index]
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
        unsupported = (unsupported_reason(model) for model in models if model is not None)
        reasons = [reason for reason in unsupported if reason]
        for reason in reasons:
            _log_once(f"rows are not packed, but run one sequence each: {reason}")
        return cls(not reasons)

    def cut(self, rows: Sequence[Row], limit: int, *, in_order: bool = False) -> list[MicroBatch]:
        """The rows as passes, packed if that pays. `in_order`: in the order of the rows."""
        pays = self.allowed and len(rows) > 1
        if pays and token_ratio(rows) < WORTH:
            _log_once(
                f"a batch whose rows share little (token ratio below {WORTH}) runs one sequence at a time"
            )
            pays = False
        if not pays:
            chosen = micro_batches([len(row) for row in rows], limit, in_order=in_order)
            return [MicroBatch(each, False) for each in chosen]
        order = list(range(len(rows)))
        if not in_order:
            order.sort(key=lambda index: rows[index].inputs)
        found = groups([rows[index].inputs for index in order], limit)
        return [MicroBatch([order[at] for at in each], True) for each in found]


NEVER = Packing(False)


def token_ratio(rows: Sequence[Row]) -> float:
    """Tokens of the rows, divided by the tokens that run if all sharing is used."""
    return ratio([row.inputs for row in rows])


@cache
def _log_once(words: str) -> None:
    log.info("learn: %s", words)
