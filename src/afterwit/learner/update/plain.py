"""A pass the plain way: whole logits, a loss by autograd. The reference of `fused`, and the fallback."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from afterwit.learner.scoring.packing import MicroBatch
from afterwit.learner.scoring.score import response_logits, stream_logits
from afterwit.learner.scoring.teacher_outputs import views
from afterwit.learner.update import metrics
from afterwit.learner.update.state import UpdateState
from afterwit.objective.logprobs import at, logprobs
from afterwit.objective.sample_loss import sample_loss
from afterwit.objective.target import prepare


def learn(run: UpdateState, each: MicroBatch) -> dict[str, float]:
    """Add one pass over turns to the gradient."""
    chosen = each.chosen
    students = [run.items[index].student for index in chosen]
    logits = response_logits(run.policy.model, students, packed=each.packed)
    teachers, anchors = views(run, chosen, stream_logits)
    loss, terms = logits[0].new_zeros(()), Counter[str]()
    for index, logits_TV in zip(chosen, logits, strict=True):
        sample, known = run.samples[index], index in run.targets
        if not known:
            shown = islice(teachers, sample.hints)
            run.targets[index] = prepare(sample, logits_TV.detach(), shown, run.objective)
        target = run.targets[index]
        base_TV = next(anchors) if run.objective.beta > 0 else None
        part = sample_loss(logits_TV, sample, target, run.over, run.objective, logits_base_TV=base_TV)
        loss = loss + part.loss
        terms.update({name: value.item() for name, value in part.terms.items()})
        if known:
            now_T = at(logprobs(logits_TV.detach(), sample.tau), sample.ids_T)
            terms.update(metrics.ratio(now_T[sample.mask_T], sample, target, of=len(run.items)))
    loss.backward()  # type: ignore[no-untyped-call]
    return {**terms, "loss": loss.item()}
