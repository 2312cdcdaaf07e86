"""How rows are cut into passes, and whether rows that begin alike share their work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from transformers import PreTrainedModel

from afterwit.learner.scoring.rows import Row, micro_batches, micro_batches_in_order
from afterwit.learner.settings import LearnerSettings
from afterwit.tree.groups import WORTH, groups, ratio
from afterwit.tree.support import unsupported_reason
from afterwit.weights.widened import widened

log = logging.getLogger(__name__)


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
