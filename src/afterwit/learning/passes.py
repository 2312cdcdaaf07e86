"""The passes of an update: the phases that it reports, and the processes that share its work.

The learn stage renews its leases by the phases, and tests watch them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.learning.score import Packing, Row, response_states

if TYPE_CHECKING:
    from afterwit.learning.models import Masters

T = TypeVar("T")


class Phase(StrEnum):
    """In the order in which an update passes them; SCORING and STEPPED come once per pass and per epoch."""

    CLAIMED = "claimed"
    SCORING = "scoring"
    STEPPED = "stepped"
    WRITING = "writing"
    """The weights are on disk, the optimiser's state and the manifest are not."""
    WRITTEN = "written"
    """The manifest is in place: the update has happened, the store does not know it yet."""
    COMMITTED = "committed"


Progress = Callable[[Phase], None]


class PhaseTimes:
    """A `Progress` that also adds up the seconds from each report to the next, by what was done meanwhile."""

    DONE: Mapping[Phase, str] = {Phase.SCORING: "passes", Phase.STEPPED: "step"}

    def __init__(self, progress: Progress, clock: Callable[[], float] = perf_counter) -> None:
        self._progress, self._clock = progress, clock
        self._last = clock()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def __call__(self, phase: Phase) -> None:
        if phase in self.DONE:
            self.done(self.DONE[phase])
        self._progress(phase)

    def done(self, what: str) -> None:
        """The time since the last report went into this."""
        now = self._clock()
        self._seconds[what] += now - self._last
        self._last = now

    def metrics(self) -> dict[str, float]:
        """`seconds_passes`, `seconds_step` and their like, for the manifest."""
        return {f"seconds_{what}": seconds for what, seconds in self._seconds.items()}


class Ranks:
    """A learner of one process. `Group` is one of several, which all call the same methods in the same order.

    If a rank fails, the others raise at their next exchange: code between two exchanges needs no care. Only a
    failure within `in_lockstep` cannot be shared.
    """

    rank = 0
    size = 1
    lockstep = False
    """Whether each rank holds a part of the model only, so that all run their passes at the same time."""

    def every(self, mine: T) -> list[T]:
        """An exchange: the value of each rank."""
        return [mine]

    def gathered(self, mine: Mapping[int, T]) -> dict[int, T]:
        """The entries of all ranks, in the order of their keys. Tensors among them are on the CPU."""
        return dict(sorted((key, value) for part in self.every(dict(mine)) for key, value in part.items()))

    def totals(self, mine: Mapping[str, float]) -> dict[str, float]:
        """The sum over all ranks of each number."""
        every = self.every(dict(mine))
        names = dict.fromkeys(name for part in every for name in part)
        return {name: sum(part.get(name, 0.0) for part in every) for name in names}

    def share(self, work: Sequence[int]) -> list[int]:
        """The pieces of work, by index, that this rank does; `work` is what each costs, in any unit."""
        return list(range(len(work)))

    def passes(self, mine: Sequence[T], progress: Progress) -> Iterator[T | None]:
        """This rank's passes, with `progress` after each; in lockstep None follows while others have more."""
        for each in mine:
            yield each
            self.passed(progress)

    def passed(self, progress: Progress) -> None:
        """Report a pass. In lockstep all ranks do so at the same time, and may fail together here."""
        progress(Phase.SCORING)

    def in_lockstep(self) -> AbstractContextManager[None]:
        """Around passes that all ranks run at the same time: a failure in one ends the learner."""
        return nullcontext()

    def add_up(self, masters: Masters) -> None:
        """Every master's gradient becomes the sum over all ranks."""

    def require_alike(self, masters: Masters) -> None:
        """Raises RankLost unless all ranks hold the same masters, to the bit."""

    def spread(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of rank 0; what the others give is not read."""
        return dict(tensors)

    def leading(self, order: Callable[..., None], **arguments: object) -> AbstractContextManager[None]:
        """Rank 0 does what follows, and the others `order(follower, **arguments)`: all, or none."""
        return nullcontext()


ALONE = Ranks()


Stream = Callable[[PreTrainedModel, Sequence[Row], int, Packing], Iterator[Tensor]]
EMPTY_ROW = Row(prompt=(0,), response=(0,))
"""The row of an empty pass."""


def streamed(
    stream: Stream, model: PreTrainedModel, rows: Sequence[Row], limit: int, packing: Packing, ranks: Ranks
) -> Iterator[Tensor]:
    """The outputs of the rows in order; in lockstep all are run at once, and empty passes after them."""
    if not ranks.lockstep:
        return stream(model, rows, limit, packing)
    mine = len(packing.cut(rows, limit, in_order=True))
    with ranks.in_lockstep(), torch.no_grad():
        most = max(ranks.every(mine))
        found = list(stream(model, rows, limit, packing))
        for _ in range(most - mine):
            response_states(model, [EMPTY_ROW])
    return iter(found)
