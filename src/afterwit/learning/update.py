"""One update: the batch's gradient, summed over micro-batches, then the optimiser's step; once per epoch.

Every part of the loss is divided by counts over the whole batch, so micro-batches may be cut anywhere, and
run by any rank of the learner: gradients and terms are summed before they are looked at.

With `fused` heads the backbone gives states, and the head loss and gradient by chunks of rows. `plain` passes
take whole logits and a loss by autograd: the reference, and the way for models with an unusual head.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.errors import UpdateRefused
from afterwit.fused_head.head import HeadGradients, head_of
from afterwit.fused_head.loss import Reference, ScoringInput, collect_rows, fused_loss, targets
from afterwit.learning.batch import Item, samples_of
from afterwit.learning.metrics import figures, measure, way_to_teacher, work
from afterwit.learning.models import clip_gradients
from afterwit.learning.passes import (
    ALONE,
    EMPTY_ROW,
    NEVER,
    MicroBatch,
    Packing,
    Phase,
    Progress,
    Ranks,
    Row,
    Stream,
    response_logits,
    response_states,
    stream_logits,
    stream_states,
    streamed,
)
from afterwit.learning.policy import FrozenModels, Policy
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.sample import Denominators, Sample, Target, denominators, prepare, sample_loss
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms import at, logprobs
from afterwit.version import Effect


@dataclass(slots=True, kw_only=True)
class UpdateState:
    """One batch on its way through an update."""

    policy: Policy
    teacher: PreTrainedModel | None
    """None: no hint is read, or the teacher ran elsewhere."""
    reference: PreTrainedModel | None
    """None: beta is 0."""
    reference_reads_hints: bool
    """Whether the reference reads the first hint of a turn that has one."""
    stop_at_teacher: bool
    """Whether the teacher leaves out a disliked answer that it would make likelier."""
    items: Sequence[Item]
    samples: list[Sample]
    """Of the items, in order."""
    over: Denominators
    objective: ObjectiveSettings
    limit: int
    """Tokens of a micro-batch."""
    packing: Packing
    passes: Sequence[MicroBatch]
    """Of the items, those that this rank runs."""
    ranks: Ranks = ALONE
    fused: bool
    """Whether the heads of all models are fused with the loss; else passes are plain."""
    targets: dict[int, Target] = field(default_factory=dict)
    """By the index of this rank's items; filled in the first epoch, when the policy is the old one."""
    reward_mean: float
    """The running mean of rewards after the batch."""
    now: Mapping[int, Tensor] = field(default_factory=dict)
    """log pi(y) [T] of this rank's items after the last step, by index, where it was read."""


Epoch = Callable[[UpdateState, LearnerSettings, Progress], tuple[dict[str, float], float]]
"""One step of the optimiser over the whole batch: its loss terms and the gradient's norm before clipping."""


def update(
    policy: Policy,
    frozen: FrozenModels,
    items: Sequence[Item],
    objective: ObjectiveSettings,
    settings: LearnerSettings,
    progress: Progress,
    ranks: Ranks = ALONE,
    measured: int = 0,
    epoch: Epoch | None = None,
) -> tuple[dict[str, float], tuple[Effect, ...]]:
    """Move the policy's weights by one batch; returns the metrics, measured at the update's start, and the
    effects on the first `measured` items.

    All ranks of the learner call it with the same items and the same weights, and return the same. `epoch`
    takes each step of the optimiser in the place of this module's own.
    Raises UpdateRefused if loss or gradient is not finite. After any error load the policy again: an earlier
    epoch may have moved it.
    """
    state = update_state(policy, frozen, items, objective, settings, ranks)
    for group in policy.optimizer.param_groups:
        group["lr"] = settings.rate
    step = epoch or one_epoch
    terms, norm = step(state, settings, progress)
    found = {**terms, "grad_norm": norm} | figures(state)
    for _ in range(settings.epochs - 1):
        terms, _ = step(state, settings, progress)
        found |= {name: value for name, value in terms.items() if name.startswith("ratio_")}
        if _far(terms, settings):
            break
    policy.reward_mean = state.reward_mean
    if policy.ema is not None:
        policy.ema.follow(policy.masters)
    ranks.require_alike(policy.masters)
    effects = measure(state, measured)
    if (share := way_to_teacher(state)) is not None:
        found["way_to_teacher"] = share
    return found, effects


def one_epoch(
    state: UpdateState, settings: LearnerSettings, progress: Progress
) -> tuple[dict[str, float], float]:
    policy, ranks = state.policy, state.ranks
    policy.masters.clear()
    counted: Counter[str] = Counter()
    for micro_batch in ranks.passes(state.passes, progress):
        if micro_batch is None:
            accumulate_nothing(state)
        else:
            counted.update(accumulate(state, micro_batch))
    terms = ranks.totals(counted)
    if _far(terms, settings):
        policy.masters.clear()
        return terms, 0.0
    ranks.add_up(policy.masters)
    norm = clip_gradients(policy.masters, settings.clip)
    require_finite(terms["loss"], norm, policy)
    policy.optimizer.step()
    policy.masters.clear()
    policy.masters.publish()
    progress(Phase.STEPPED)
    return terms, norm


def _far(terms: Mapping[str, float], settings: LearnerSettings) -> bool:
    """Whether the steps so far moved the policy enough; False before the first, whose terms have no ratio."""
    return 0 < settings.max_move <= terms.get("ratio_distance", 0.0)


def require_finite(loss: float, norm: float, policy: Policy) -> None:
    """UpdateRefused unless loss and gradient are finite; the gradient is forgotten then."""
    if not (math.isfinite(loss) and math.isfinite(norm)):
        policy.masters.clear()
        raise UpdateRefused(f"the loss is {loss}, the gradient's norm {norm}: no step was taken")


def update_state(
    policy: Policy,
    frozen: FrozenModels,
    items: Sequence[Item],
    objective: ObjectiveSettings,
    settings: LearnerSettings,
    ranks: Ranks = ALONE,
) -> UpdateState:
    """The state before the first micro-batch."""
    limit, teacher, server = settings.pass_tokens, None, None
    if objective.needs_teacher and any(item.teachers for item in items):
        server = frozen.served
        teacher = frozen.teacher(policy) if server is None else None
    reference = frozen.reference(policy) if objective.beta > 0 else None
    samples, reward_mean = samples_of(items, policy, objective, server, limit, ranks)
    if settings.reference_reads_hints and any(item.teachers for item in items):
        pairs = zip(samples, items, strict=True)
        samples = [replace(sample, anchored=bool(item.teachers)) for sample, item in pairs]
    packing = Packing.of(settings, policy.model, teacher, reference)
    return UpdateState(
        policy=policy,
        teacher=teacher,
        reference=reference,
        reference_reads_hints=settings.reference_reads_hints,
        stop_at_teacher=settings.stop_at_teacher,
        items=items,
        samples=samples,
        over=denominators(samples, objective),
        objective=objective,
        limit=limit,
        packing=packing,
        passes=own_passes(items, packing, limit, ranks),
        ranks=ranks,
        fused=policy.head is not None and frozen.fusable,
        reward_mean=reward_mean,
    )


def own_passes(items: Sequence[Item], packing: Packing, limit: int, ranks: Ranks) -> list[MicroBatch]:
    """This rank's passes, of at most `limit` tokens; some rank may have none.

    Items that run one sequence each are shared out before they are cut: so no rank has more to do by a whole
    pass. Packed passes are shared out as they are cut, so that shared beginnings stay together.
    """
    rows = [item.student for item in items]
    passes = packing.cut(rows, limit)
    if not passes[0].packed:
        own = ranks.share([work([item]) for item in items])
        cut = NEVER.cut([rows[index] for index in own], limit)
        return [MicroBatch([own[at] for at in each.chosen], False) for each in cut]
    while len(passes) < min(ranks.size, len(rows)) and limit > 1:  # else some rank would have none
        limit //= 2
        passes = packing.cut(rows, limit)
    mine = ranks.share([work([items[index] for index in each.chosen]) for each in passes])
    return [passes[index] for index in mine]


def accumulate(state: UpdateState, micro_batch: MicroBatch) -> Mapping[str, float]:
    """Add a micro-batch to the gradient; returns its part of the loss and of each term."""
    if state.fused:
        return _accumulate_fused(state, micro_batch)
    students = [state.items[index].student for index in micro_batch.chosen]
    logits = response_logits(state.policy.model, students, packed=micro_batch.packed)
    loss, terms = losses(state, micro_batch.chosen, logits)
    loss.backward()  # type: ignore[no-untyped-call]
    return {**terms, "loss": loss.item()}


@torch.no_grad()
def score(state: UpdateState) -> None:
    """Fill all targets as the first epoch of an update does. Nothing is learned."""
    for micro_batch in state.passes:
        students = [state.items[index].student for index in micro_batch.chosen]
        if state.fused:
            states_ND = response_states(state.policy.model, students, packed=micro_batch.packed)
            _prepare_targets(state, micro_batch.chosen, states_ND)
        else:
            logits = response_logits(state.policy.model, students, packed=micro_batch.packed)
            losses(state, micro_batch.chosen, logits)


def accumulate_nothing(state: UpdateState) -> None:
    """Run the models as `accumulate` does in the other ranks, with gradients of 0."""
    if state.fused:
        output, stream = response_states(state.policy.model, [EMPTY_ROW]), stream_states
    else:
        (output,), stream = response_logits(state.policy.model, [EMPTY_ROW]), stream_logits
    teacher_outputs(state, (), stream)
    (output.sum() * 0).backward()  # type: ignore[no-untyped-call]


def _accumulate_fused(state: UpdateState, micro_batch: MicroBatch) -> Mapping[str, float]:
    chosen, policy = micro_batch.chosen, state.policy
    known = [index for index in chosen if index in state.targets]
    students = [state.items[index].student for index in chosen]
    states_ND = response_states(policy.model, students, packed=micro_batch.packed)
    reference = _prepare_targets(state, chosen, states_ND.detach())
    samples, found = [state.samples[index] for index in chosen], [state.targets[index] for index in chosen]
    rows = collect_rows(samples, found, state.over, state.objective)
    head = policy.whole_head()
    gradients = HeadGradients(
        weight_VD=policy.masters.gradient(head.weight_VD),
        bias_V=policy.masters.gradient(head.bias_V),
    )
    loss = fused_loss(head, states_ND.detach(), rows, state.objective, gradients, reference=reference)
    states_ND.backward(loss.grad_states_ND)  # type: ignore[no-untyped-call]
    numbers = torch.stack([*loss.terms.values(), loss.loss]).tolist()  # at once: a GPU is waited for once
    counted = Counter(dict(zip((*loss.terms, "loss"), numbers, strict=True)))
    if known:
        parts = torch.split(loss.now_N, [int(sample.mask_T.sum()) for sample in samples])
        for sample, target, now_N in zip(samples, found, parts, strict=True):
            counted.update(_ratio(now_N, sample, target, of=len(state.items)))
    return counted


def _prepare_targets(state: UpdateState, chosen: Sequence[int], states_ND: Tensor) -> Reference | None:
    """Fill the targets of the chosen turns that have none yet; returns the reference's states of all."""
    hinted, plain = teacher_outputs(state, chosen, stream_states)
    own = torch.split(states_ND, [len(state.samples[index].ids_T) for index in chosen])
    inputs, reference = dict[int, ScoringInput](), list[Tensor]()
    for index, states_TD in zip(chosen, own, strict=True):
        if index not in state.targets:
            sample = state.samples[index]
            teachers = tuple(islice(hinted, sample.hints))
            inputs[index] = ScoringInput(sample=sample, states_TD=states_TD, teachers=teachers)
        if state.reference is not None:
            anchored = state.samples[index].anchored
            reference.append(next(plain) if anchored else _unread(state.reference, len(states_TD)))
    if inputs:
        teacher = None if state.teacher is None else head_of(state.teacher)
        found = targets(state.policy.whole_head(), list(inputs.values()), teacher, state.objective)
        for index, target in zip(inputs, found, strict=True):
            _add_target(state, index, target)
    if state.reference is None:
        return None
    return Reference(head=head_of(state.reference), states_ND=torch.cat(reference))


def _add_target(state: UpdateState, index: int, target: Target) -> None:
    """Keep an item's target. A disliked answer is overtaken if the teacher would make it likelier: then the
    policy avoids it more than the teacher does."""
    state.targets[index], sample = target, state.samples[index]
    if state.stop_at_teacher and state.items[index].disliked and target.hint_T is not None:
        overtaken = float(target.tokens.gap_N.double()[sample.mask_of("opd")].sum()) > 0
        state.samples[index] = replace(sample, overtaken=overtaken)


def losses(
    state: UpdateState, chosen: Sequence[int], logits: Sequence[Tensor]
) -> tuple[Tensor, Counter[str]]:
    """The part of the chosen turns, whose logits [T, V] these are, in the loss and in each of its terms.

    In lockstep call it for no turn too, while other ranks' teachers run.
    """
    hinted, plain = teacher_outputs(state, chosen, stream_logits)
    loss, terms = torch.zeros((), device=state.policy.model.device), Counter[str]()
    for index, logits_TV in zip(chosen, logits, strict=True):
        sample, known = state.samples[index], index in state.targets
        if not known:
            teachers = (each_TV.to(logits_TV.device) for each_TV in islice(hinted, sample.hints))
            _add_target(state, index, prepare(sample, logits_TV.detach(), teachers, state.objective))
        sample, target = state.samples[index], state.targets[index]
        reference_TV = None
        if state.reference is not None and sample.anchored:
            reference_TV = next(plain).to(logits_TV.device)
        part = sample_loss(
            logits_TV, sample, target, state.over, state.objective, logits_reference_TV=reference_TV
        )
        loss = loss + part.loss
        terms.update({name: value.item() for name, value in part.terms.items()})
        if known:
            now_T = at(logprobs(logits_TV.detach(), sample.tau), sample.ids_T)
            terms.update(_ratio(now_T[sample.mask_T], sample, target, of=len(state.items)))
    return loss, terms


def _ratio(now_N: Tensor, sample: Sample, target: Target, *, of: int) -> dict[str, float]:
    """One sample's part of the batch's mean pi / pi_old and mean |log pi - log pi_old| of its tokens.

    `now_N` is log pi(y) of the tokens that train.
    """
    apart_N = now_N - target.tokens.old_N[sample.mask_T]
    return {
        "ratio_mean": apart_N.exp().mean().item() / of,
        "ratio_distance": apart_N.abs().mean().item() / of,
    }


def teacher_outputs(
    state: UpdateState, chosen: Sequence[int], stream: Stream
) -> tuple[Iterator[Tensor], Iterator[Tensor]]:
    """The teacher's outputs after each hint of the chosen turns without a target, and the reference's.

    If both are the same model there is one stream, turn by turn, hints first, so that they share prompts.
    """

    def outputs(model: PreTrainedModel | None, rows: Sequence[tuple[Row, ...]]) -> Iterator[Tensor]:
        if model is None:
            return iter(())
        flat = [row for each in rows for row in each]
        return streamed(stream, model, flat, state.limit, state.packing, state.ranks)

    hinted = [() if index in state.targets else state.items[index].teachers for index in chosen]
    plain = [
        (_reference_row(state, index),) if state.reference and state.samples[index].anchored else ()
        for index in chosen
    ]
    if state.teacher is state.reference:
        one = _of_one_model(hinted, plain, partial(outputs, state.teacher))
        return one, one
    return outputs(state.teacher, hinted), outputs(state.reference, plain)


def _unread(reference: PreTrainedModel, tokens: int) -> Tensor:
    """Placeholder states of a turn that the KL does not count."""
    weight_VD = head_of(reference).weight_VD
    return weight_VD.new_zeros((tokens, weight_VD.shape[1]))


def _reference_row(state: UpdateState, index: int) -> Row:
    item = state.items[index]
    return item.teachers[0] if state.reference_reads_hints and item.teachers else item.student


def _of_one_model(
    hinted: Sequence[tuple[Row, ...]],
    plain: Sequence[tuple[Row, ...]],
    outputs: Callable[[Sequence[tuple[Row, ...]]], Iterator[Tensor]],
) -> Iterator[Tensor]:
    """The outputs of each turn's hinted rows and of its plain row; a plain row that is its first hinted one
    is read once."""
    pairs = list(zip(hinted, plain, strict=True))
    found = outputs([hints if own == hints[:1] else hints + own for hints, own in pairs])
    for hints, own in pairs:
        first = None
        for at_hint, _ in enumerate(hints):
            output = next(found)
            first = output if at_hint == 0 else first
            yield output
        if own:
            yield next(found) if first is None or own != hints[:1] else first
