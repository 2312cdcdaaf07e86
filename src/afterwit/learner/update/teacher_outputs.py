"""The outputs of teacher and reference for a micro-batch's turns. Only what is still needed runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor
from transformers import PreTrainedModel

from afterwit.learner.ranks.lockstep import Stream, streamed
from afterwit.learner.scoring.rows import Row
from afterwit.learner.update.state import UpdateState


def teacher_outputs(
    state: UpdateState, chosen: Sequence[int], stream: Stream
) -> tuple[Iterator[Tensor], Iterator[Tensor]]:
    """The teacher's outputs after each hint of the chosen turns without a target, and the reference's.

    If both are the same model there is one stream, turn by turn, hints first, so that they share prompts.
    """
    hinted = [() if index in state.targets else state.items[index].teachers for index in chosen]
    plain = [() if state.reference is None else (state.items[index].student,) for index in chosen]
    if state.teacher is state.reference:
        both = _outputs(
            state, state.teacher, [hints + own for hints, own in zip(hinted, plain, strict=True)], stream
        )
        return both, both
    return _outputs(state, state.teacher, hinted, stream), _outputs(state, state.reference, plain, stream)


def _outputs(
    state: UpdateState, model: PreTrainedModel | None, rows: Sequence[tuple[Row, ...]], stream: Stream
) -> Iterator[Tensor]:
    flat = [row for each in rows for row in each]
    if model is None:
        return iter(())
    return streamed(stream, model, flat, state.limit, state.packing, state.ranks)
