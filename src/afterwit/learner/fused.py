"""A pass with the fused head: the backbone gives states, the head's loss and gradient come chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from afterwit.head.flatten import memory_rows, turn_rows
from afterwit.head.head import Gradients, Head
from afterwit.head.learn import Base, Learned
from afterwit.head.learn import learn as learn_rows
from afterwit.head.pupil import Pupil
from afterwit.head.rows import Rows
from afterwit.head.targets import targets
from afterwit.learner import measure
from afterwit.learner.heads import head_of
from afterwit.learner.memory import Memory
from afterwit.learner.rows import Row
from afterwit.learner.run import Run
from afterwit.learner.score import response_states, stream_states


def learn(run: Run, chosen: Sequence[int]) -> dict[str, float]:
    """Add one pass over turns to the gradient."""
    students = [run.items[index].student for index in chosen]
    states_ND = response_states(run.policy.model, students)
    known = [index for index in chosen if index in run.targets]
    _prepare(run, chosen, states_ND)
    rows = turn_rows(
        [run.samples[index] for index in chosen],
        [run.targets[index] for index in chosen],
        run.over,
        run.objective,
    )
    base = _base(run, students) if run.objective.beta > 0 else None
    found = _go_back(run, states_ND, rows, base)
    return _numbers(found) | (_ratios(run, chosen, found.now_N) if known else {})


def remember(run: Run, memories: Sequence[Memory]) -> dict[str, float]:
    """Add one pass over memory samples to the gradient."""
    base = _base(run, [memory.row for memory in memories])
    if base is None:
        raise ValueError(f"{len(memories)} memory samples, but no base to compare with")
    states_ND = response_states(run.policy.model, [memory.row for memory in memories])
    masks = [
        torch.ones(len(memory.row.response), dtype=torch.bool, device=states_ND.device) for memory in memories
    ]
    rows = memory_rows(masks, [memory.tau for memory in memories], run.over, _head(run).dtype)
    return _numbers(_go_back(run, states_ND, rows, base))


def _prepare(run: Run, chosen: Sequence[int], states_ND: Tensor) -> None:
    """The targets of the chosen turns that have none yet."""
    lengths = [len(run.samples[index].ids_T) for index in chosen]
    own = {
        index: states_TD
        for index, states_TD in zip(chosen, torch.split(states_ND.detach(), lengths), strict=True)
        if index not in run.targets
    }
    if not own:
        return
    hinted = [row for index in own for row in run.items[index].teachers]
    shown = iter(() if run.teacher is None else stream_states(run.teacher, hinted, run.limit))
    pupils = [
        Pupil(
            sample=run.samples[index],
            states_TD=states_TD,
            teachers=tuple(next(shown) for _ in range(run.samples[index].hints)),
        )
        for index, states_TD in own.items()
    ]
    teacher = None if run.teacher is None else head_of(run.teacher)
    run.targets.update(zip(own, targets(_head(run), pupils, teacher, run.objective), strict=True))


def _base(run: Run, rows: Sequence[Row]) -> Base | None:
    if run.base is None:
        return None
    return Base(head=head_of(run.base), states_ND=torch.cat(list(stream_states(run.base, rows, run.limit))))


def _go_back(run: Run, states_ND: Tensor, rows: Rows, base: Base | None) -> Learned:
    """The loss of these rows, its gradient added to the head's and, through the states, to all others."""
    head, masters = _head(run), run.policy.masters
    gradients = Gradients(weight_VD=masters.gradient(head.weight_VD), bias_V=masters.gradient(head.bias_V))
    found = learn_rows(head, states_ND.detach(), rows, run.objective, gradients, base=base)
    states_ND.backward(found.slopes_ND)  # type: ignore[no-untyped-call]
    return found


def _head(run: Run) -> Head:
    if run.policy.head is None:
        raise ValueError("the policy's head is not to be fused")
    return run.policy.head


def _numbers(found: Learned) -> dict[str, float]:
    return {name: term.item() for name, term in found.terms.items()} | {"loss": found.loss.item()}


def _ratios(run: Run, chosen: Sequence[int], now_N: Tensor) -> dict[str, float]:
    """The parts of these turns in the mean ratios of the batch."""
    samples = [run.samples[index] for index in chosen]
    parts = torch.split(now_N, [int(sample.mask_T.sum()) for sample in samples])
    each = [
        measure.ratio(now, sample, run.targets[index], of=len(run.items))
        for index, sample, now in zip(chosen, samples, parts, strict=True)
    ]
    return {name: sum(part[name] for part in each) for name in each[0]}
