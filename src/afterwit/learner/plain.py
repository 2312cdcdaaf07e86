"""A pass the plain way: whole logits, a loss by autograd. The reference of `fused`, and the fallback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from afterwit.learner import measure
from afterwit.learner.memory import Memory
from afterwit.learner.run import Run
from afterwit.learner.score import response_logits, stream_logits
from afterwit.objective.hybrid import memory_share, share
from afterwit.objective.logprobs import at, logprobs
from afterwit.objective.target import prepare


def learn(run: Run, chosen: Sequence[int]) -> dict[str, float]:
    """Add one pass over turns to the gradient."""
    rows = [run.items[index].student for index in chosen]
    logits = response_logits(run.policy.model, rows)
    teachers = _teachers(run, chosen)
    anchors = (
        stream_logits(run.base, rows, run.limit) if run.base is not None and run.objective.beta > 0 else None
    )
    loss, terms = logits[0].new_zeros(()), Counter[str]()
    for index, logits_TV in zip(chosen, logits, strict=True):
        sample, known = run.samples[index], index in run.targets
        if not known:
            shown = islice(teachers, sample.hints)
            run.targets[index] = prepare(sample, logits_TV.detach(), shown, run.objective)
        target = run.targets[index]
        base_TV = None if anchors is None else next(anchors)
        part = share(logits_TV, sample, target, run.over, run.objective, logits_base_TV=base_TV)
        loss = loss + part.loss
        terms.update({name: value.item() for name, value in part.terms.items()})
        if known:
            now_T = at(logprobs(logits_TV.detach(), sample.tau), sample.ids_T)
            terms.update(measure.ratio(now_T[sample.mask_T], sample, target, of=len(run.items)))
    loss.backward()  # type: ignore[no-untyped-call]
    return {**terms, "loss": loss.item()}


def _teachers(run: Run, chosen: Sequence[int]) -> Iterator[Tensor]:
    """The teacher's logits of every hint of the chosen turns that has not been heard yet, in their order."""
    rows = [row for index in chosen if index not in run.targets for row in run.items[index].teachers]
    return iter(()) if run.teacher is None else stream_logits(run.teacher, rows, run.limit)


def remember(run: Run, memories: Sequence[Memory]) -> dict[str, float]:
    """Add one pass over memory samples to the gradient."""
    if run.base is None:
        raise ValueError(f"{len(memories)} memory samples, but no base to compare with")
    rows = [memory.row for memory in memories]
    logits = response_logits(run.policy.model, rows)
    loss, terms = logits[0].new_zeros(()), Counter[str]()
    for memory, logits_TV, base_TV in zip(
        memories, logits, stream_logits(run.base, rows, run.limit), strict=True
    ):
        mask_T = torch.ones(len(logits_TV), dtype=torch.bool, device=logits_TV.device)
        part = memory_share(logits_TV, base_TV, mask_T, run.over, run.objective, tau=memory.tau)
        loss = loss + part.loss
        terms.update({name: value.item() for name, value in part.terms.items()})
    loss.backward()  # type: ignore[no-untyped-call]
    return {**terms, "loss": loss.item()}
