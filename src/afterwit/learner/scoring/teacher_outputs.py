"""What base and teacher say of a pass, heard only where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor
from transformers import PreTrainedModel

from afterwit.learner.scoring.packing import Packing
from afterwit.learner.scoring.rows import Row
from afterwit.learner.update.state import UpdateState

Stream = Callable[[PreTrainedModel, Sequence[Row], int, Packing], Iterator[Tensor]]


def views(
    run: UpdateState, chosen: Sequence[int], stream: Stream
) -> tuple[Iterator[Tensor], Iterator[Tensor]]:
    """The teacher's, of the chosen turns' hints that have not been heard yet; the base's, of their students.

    One model's are one stream, turn by turn, hints first: they share their prompts.
    """
    hinted = [() if index in run.targets else run.items[index].teachers for index in chosen]
    plain = [(run.items[index].student,) if run.objective.beta > 0 else () for index in chosen]
    if run.teacher is run.base:
        together = _flat(
            run, run.base, [hints + own for hints, own in zip(hinted, plain, strict=True)], stream
        )
        return together, together
    return _flat(run, run.teacher, hinted, stream), _flat(run, run.base, plain, stream)


def _flat(
    run: UpdateState, model: PreTrainedModel | None, rows: Sequence[tuple[Row, ...]], stream: Stream
) -> Iterator[Tensor]:
    flat = [row for each in rows for row in each]
    return iter(()) if model is None else stream(model, flat, run.limit, run.packing)
