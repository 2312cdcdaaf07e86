"""What an update needs of the other ranks. Alone it is nothing, and costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.learning.optimizer import Masters
from afterwit.learning.rows import Packing, Row
from afterwit.learning.score import response_states

T = TypeVar("T")


class Ranks(Protocol):
    """All ranks call the same methods in the same order."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int:
        """How many ranks there are."""

    @property
    def lockstep(self) -> bool:
        """Whether each rank holds a part of the model only, so that all run their passes at the same time."""

    def share(self, work: Sequence[int]) -> list[int]:
        """The pieces of work, by index, that are this rank's; `work` is what each costs, in any unit."""

    def together(self) -> AbstractContextManager[None]:
        """What follows is done by all ranks or by none: an exception of one rank is raised in all of them.

        The others raise RankFailed.
        """

    def running(self) -> AbstractContextManager[None]:
        """`together` for passes. In lockstep there is no way back from a rank that fails: RankLost."""

    def in_step(self) -> AbstractContextManager[None]:
        """`together` between two passes in lockstep; else nothing: ranks have unequal numbers of passes."""

    def most(self, mine: int) -> int:
        """In lockstep the largest of all ranks' numbers, else this one's."""

    def every(self, mine: T) -> list[T]:
        """What each rank gives, by rank."""

    def gathered(self, mine: Mapping[int, T]) -> dict[int, T]:
        """The entries of all ranks, in the order of their keys; what is gathered travels as CPU tensors."""

    def totals(self, mine: Mapping[str, float]) -> dict[str, float]:
        """The sum over all ranks of each number."""

    def add_up(self, masters: Masters) -> None:
        """Every master's gradient becomes the sum over all ranks."""

    def require_alike(self, masters: Masters) -> None:
        """Raises RankLost unless all ranks hold the same masters, to the bit."""

    def spread(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of rank 0; what the others give is not read."""

    def leading(self, order: object) -> AbstractContextManager[None]:
        """Rank 0 does what follows, and the others do it by this order."""

    def end(self) -> None:
        """Tell the others that nothing will follow."""


class Alone:
    """A learner of one process."""

    rank, size, lockstep = 0, 1, False

    def share(self, work: Sequence[int]) -> list[int]:
        return list(range(len(work)))

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def running(self) -> AbstractContextManager[None]:
        return nullcontext()

    def in_step(self) -> AbstractContextManager[None]:
        return nullcontext()

    def most(self, mine: int) -> int:
        return mine

    def every(self, mine: T) -> list[T]:
        return [mine]

    def gathered(self, mine: Mapping[int, T]) -> dict[int, T]:
        return dict(mine)

    def totals(self, mine: Mapping[str, float]) -> dict[str, float]:
        return dict(mine)

    def add_up(self, masters: Masters) -> None:
        """Its gradients are the sum."""

    def require_alike(self, masters: Masters) -> None:
        """There is one copy."""

    def spread(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(tensors)

    def leading(self, order: object) -> AbstractContextManager[None]:
        return nullcontext()

    def end(self) -> None:
        """Nobody follows."""


ALONE = Alone()


Stream = Callable[[PreTrainedModel, Sequence[Row], int, Packing], Iterator[Tensor]]


NOTHING = Row(prompt=(0,), response=(0,))
"""The row of an empty pass."""


def padded(passes: Sequence[T], ranks: Ranks) -> list[T | None]:
    """This rank's passes; in lockstep with None at the end for those that other ranks have more."""
    return [*passes, *[None] * (ranks.most(len(passes)) - len(passes))]


def streamed(
    stream: Stream, model: PreTrainedModel, rows: Sequence[Row], limit: int, packing: Packing, ranks: Ranks
) -> Iterator[Tensor]:
    """The outputs of the rows in order; in lockstep all are run at once, and empty passes after them."""
    if not ranks.lockstep:
        return stream(model, rows, limit, packing)
    mine = len(packing.cut(rows, limit, in_order=True))
    most = ranks.most(mine)
    found = list(stream(model, rows, limit, packing))
    for _ in range(most - mine):
        empty_pass(model)
    return iter(found)


@torch.no_grad()
def empty_pass(model: PreTrainedModel) -> None:
    """A pass without a row."""
    response_states(model, [NOTHING])
