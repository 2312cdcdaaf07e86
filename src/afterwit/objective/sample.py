"""A sample as the objectives see it, without its logits, and its loss in two phases.

One, without gradient: what the old policy and the teachers predict, kept as a compact target. Every field
separates by rows and by hints, so logits may come in chunks and one teacher at a time.

Two, with gradient: the terms, weighted and summed.

    L = w_rl RL + w_opd OPD + combine - entropy_coef H + beta KL(pi || reference)

A batch's loss is the sum of its samples' parts, so no split into micro-batches and no packing changes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import NamedTuple, Self

import torch
from torch import Tensor

from afterwit.objective.settings import AGGREGATIONS, BASELINES, TERMS, ObjectiveSettings, Rewarded
from afterwit.objective.terms import (
    TokenTargets,
    at,
    entropy,
    keep,
    logprobs,
    reference_kl,
    same_shape,
    term_loss,
    top_k,
)
from afterwit.turn import Basis, is_greedy, scoring_temperature
from afterwit.verdict import Carried


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One response with its advantage and its hints. Misaligned or empty samples cannot be built."""

    ids_T: Tensor
    """The sampled ids, int64."""
    mask_T: Tensor
    """True for a token that trains; False for one that a grammar forced."""
    behaviour_T: Tensor | None
    """log pi_b of the sampled ids; `None`: no off-policy correction."""
    basis: Basis = Basis.PROCESSED
    """The distribution that `behaviour_T` is of."""
    tau: float
    """The temperature of every log-prob of this sample."""
    advantage: float | None
    """The RL advantage; `None`: no RL term."""
    hints: int
    """Number of teachers that run; 0: no OPD term, unless a teacher's rows are given."""
    teacher_rows: tuple[TeacherRows, ...] = ()
    """The rows of teachers that ran elsewhere, one per hint."""
    anchored: bool = True
    """Whether the KL to the reference counts it."""
    overtaken: bool = False
    """Whether distillation counts it, but does not teach it."""

    def __post_init__(self) -> None:
        tokens = len(self.ids_T)
        if len(self.mask_T) != tokens:
            raise ValueError(f"{tokens} ids but a mask of {len(self.mask_T)}")
        if self.behaviour_T is not None and len(self.behaviour_T) != tokens:
            raise ValueError(f"{tokens} ids but {len(self.behaviour_T)} log-probs")
        if self.ids_T.dtype != torch.int64 or self.mask_T.dtype != torch.bool:
            raise ValueError(f"ids are {self.ids_T.dtype} and mask {self.mask_T.dtype}, not int64 and bool")
        if not bool(self.mask_T.any()):
            raise ValueError(f"none of the {tokens} tokens trains")
        if self.basis not in tuple(Basis):
            raise ValueError(f"basis is {self.basis!r}, but must be one of {', '.join(Basis)}")
        if self.teacher_rows and self.hints:
            raise ValueError(f"a teacher's rows are given, but {self.hints} teachers run")
        for rows in self.teacher_rows:
            if len(rows.ids_TK) != tokens:
                raise ValueError(f"{tokens} ids but {len(rows.ids_TK)} teacher's rows")
        if not self.tau > 0:
            raise ValueError(f"tau is {self.tau}, but must be above 0")

    @property
    def carried(self) -> Carried:
        """The terms that its reward and its hints can become."""
        return Carried(rl=self.advantage is not None, opd=self.taught)

    @property
    def taught(self) -> bool:
        """Whether a teacher scores it."""
        return self.hints > 0 or bool(self.teacher_rows)

    def mask_of(self, term: str) -> Tensor:
        """The tokens that a term is a mean over: in distillation by given rows, those that have one."""
        if term != "opd" or not self.teacher_rows:
            return self.mask_T
        return torch.stack([self.mask_T, *(rows.distilled_T for rows in self.teacher_rows)]).all(dim=0)

    def taught_by(self, term: str) -> Tensor:
        """The tokens that a term teaches: those of its mean, but none in distillation if it is overtaken."""
        mask_T = self.mask_of(term)
        return torch.zeros_like(mask_T) if term == "opd" and self.overtaken else mask_T

    @classmethod
    def sampled_at(
        cls,
        temperature: float,
        *,
        behaviour_T: Tensor | None,
        basis: Basis,
        tau: float | None = None,
        **facts: object,
    ) -> Self:
        """A sample of this sampling temperature.

        A greedy one is scored at temperature 1 and has no off-policy correction: its pi_b has no
        probabilities. `tau`: the temperature at which it is scored instead of its own; the correction then
        needs a pi_b at this temperature, or a raw one.
        """
        tau = scoring_temperature(temperature) if tau is None else tau
        comparable = not is_greedy(temperature) and (basis == Basis.RAW or temperature == tau)
        return cls(
            tau=tau,
            behaviour_T=behaviour_T if comparable else None,
            basis=basis,
            **facts,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherRows:
    """Log-probs of a teacher over its whole vocabulary, at the sampled id and at a few ids of each token.

    Rows are padded to one width; a token that is not distilled has no valid id.
    """

    sampled_T: Tensor
    """At the sampled ids; where a token is not distilled, anything."""
    ids_TK: Tensor
    """int64; where it is padded, any id."""
    logprobs_TK: Tensor
    valid_TK: Tensor | None = None
    """False where the ids are padded; None: they are not."""
    asked_ids_TJ: Tensor | None = None
    """Other ids that the teacher was asked about; None: it was not."""
    asked_TJ: Tensor | None = None
    """Its log-probs of these."""

    def __post_init__(self) -> None:
        shapes = {tuple(each.shape) for each in (self.ids_TK, self.logprobs_TK, self.present_TK)}
        if len(shapes) != 1:
            raise ValueError(f"ids, log-probs and validity have the shapes {sorted(shapes)}")
        if len(self.sampled_T) != len(self.ids_TK):
            raise ValueError(f"{len(self.sampled_T)} sampled ids but {len(self.ids_TK)} rows")
        if not bool(self.distilled_T.any()):
            raise ValueError("no token is distilled")

    @property
    def distilled_T(self) -> Tensor:
        """The tokens that have a row."""
        return self.present_TK.any(dim=-1)

    @property
    def present_TK(self) -> Tensor:
        """False where the ids are padded."""
        return torch.ones_like(self.ids_TK, dtype=torch.bool) if self.valid_TK is None else self.valid_TK

    def at(self, ids_TJ: Tensor) -> Tensor:
        """Its log-probs at other ids; NaN at ids that it did not score, so that they cannot be learned
        from."""
        found_TJ = _at(ids_TJ, self.ids_TK, self.logprobs_TK, self.present_TK)
        if self.asked_ids_TJ is None or self.asked_TJ is None:
            return found_TJ
        told = torch.ones_like(self.asked_ids_TJ, dtype=torch.bool)
        asked_TJ = _at(ids_TJ, self.asked_ids_TJ, self.asked_TJ, told)
        return torch.where(found_TJ.isnan(), asked_TJ, found_TJ)


def _at(ids_TJ: Tensor, known_TK: Tensor, logprobs_TK: Tensor, valid_TK: Tensor) -> Tensor:
    """The log-probs of ids among the known ones, which differ from each other; NaN at all others."""
    same_TJK = (ids_TJ.unsqueeze(-1) == known_TK.unsqueeze(-2)) & valid_TK.unsqueeze(-2)
    found_TJ = torch.where(same_TJK, logprobs_TK.unsqueeze(-2), 0.0).sum(dim=-1)
    return torch.where(same_TJK.any(dim=-1), found_TJ, torch.nan)


Denominators = Mapping[str, int]
"""Term -> its count over the global batch, however that is split into micro-batches later."""


class Advantages(NamedTuple):
    """One advantage per sample (`None`: no RL term), and the running mean for the next update."""

    values: tuple[float | None, ...]
    mean: float


def advantages(
    batch: Sequence[Rewarded | None], settings: ObjectiveSettings, *, mean: float = 0.0
) -> Advantages:
    """The rewards of a global batch less their baseline; `None` for a sample without an RL term or signal.

    `mean` is the running mean before this batch; it starts at 0. ValueError if a reward is not finite.
    """
    carried = [sample for sample in batch if sample is not None]
    for sample in carried:
        if not all(map(math.isfinite, (sample.reward, *sample.group))):
            raise ValueError(f"a reward is {sample.reward} in a group of {list(sample.group)}: not finite")
    baseline = BASELINES[settings.baseline]
    values = tuple(None if sample is None else baseline.advantage(sample, mean) for sample in batch)
    if baseline.moves_mean and carried:
        rewards = fmean(sample.reward for sample in carried)
        mean = settings.baseline_decay * mean + (1 - settings.baseline_decay) * rewards
    return Advantages(values, mean)


def denominators(samples: Iterable[Sample], settings: ObjectiveSettings) -> Denominators:
    """The denominators of a global batch. Every sample carries entropy, each anchored one reference KL."""
    batch = list(samples)
    carried = [settings.terms_of(sample.carried) for sample in batch]
    every = {"entropy": len(batch), "reference_kl": sum(sample.anchored for sample in batch)}
    return {**every, **AGGREGATIONS[settings.aggregation](carried, settings.terms)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The part of a sample that `sample_loss` needs besides its current logits. No V axis, no gradient."""

    tokens: TokenTargets
    """The values at the few ids that the terms read."""
    mismatch_T: Tensor | None
    """log pi_old(y) - log pi_b(y); `None`: the engine reported no log-probs."""
    hint_T: Tensor | None = None
    """h*: the candidate that teaches at each position; `None`: no OPD term."""
    overlap_T: Tensor | None = None
    """O[h*]: how many of the student's top-K ids are among that teacher's."""


@torch.no_grad()
def prepare(
    sample: Sample, logits_old_TV: Tensor, teachers: Iterable[Tensor], settings: ObjectiveSettings
) -> Target:
    """The target of a sample.

    `logits_old_TV` are the policy's at the start of the update: with one optimiser step per update, the
    current ones. `teachers` yields the logits [T, V] of each hint's teacher on the same ids, in the order of
    the hints; a generator keeps one of them in memory at a time. It is not read without an OPD term, or if
    the sample has a teacher's rows.
    """
    if len(logits_old_TV) != len(sample.ids_T):
        raise ValueError(f"{len(sample.ids_T)} ids but {len(logits_old_TV)} rows of logits")
    old_TV, found = logprobs(logits_old_TV, sample.tau), None
    old_T = at(old_TV, sample.ids_T)
    if settings.has_opd and sample.taught:
        k = settings.ids_kept
        if sample.teacher_rows:
            student_TK = top_k(logits_old_TV, k)
            found = candidates_of_rows(sample.teacher_rows, student_TK, old_T, partial(at, old_TV))
        else:
            found = candidates(sample, logits_old_TV, old_TV, teachers, k=k)
    return target_of(sample, old_T, found, settings, lambda: at(logprobs(logits_old_TV, 1.0), sample.ids_T))


def target_of(
    sample: Sample,
    old_T: Tensor,
    found: Candidates | None,
    settings: ObjectiveSettings,
    raw_old: Callable[[], Tensor],
) -> Target:
    """The target of a sample with these log pi_old(y). `found`: of a sample with an OPD term.

    `raw_old` gives log pi_old(y) at temperature 1, which the engine's values are compared with if they are
    raw.
    """
    mismatch_T, correction_T, gap_T = None, torch.ones_like(old_T), torch.zeros_like(old_T)
    if sample.behaviour_T is not None:
        raw = sample.basis == Basis.RAW and sample.tau != 1
        mismatch_T = (raw_old() if raw else old_T) - sample.behaviour_T
        correction_T = mismatch_T.exp().clamp(max=settings.is_cap)
    hint_T = overlap_T = kept = None
    if found is not None:
        hint_T = settings.hint_rule.choose(found, sample.mask_T)
        gap_T = found.pick(found.sampled_teacher_HT, hint_T) - old_T
        overlap_T = found.pick(found.overlap_HT, hint_T)
        kept = keep(found, hint_T, settings)
    tokens = TokenTargets(
        ids_N=sample.ids_T,
        old_N=old_T,
        correction_N=correction_T,
        advantage_N=torch.full_like(old_T, sample.advantage or 0.0),
        gap_N=gap_T,
        kept=kept,
    )
    return Target(tokens=tokens, mismatch_T=mismatch_T, hint_T=hint_T, overlap_T=overlap_T)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The top-K of pi_old and of every teacher, each scored by the other. No gradient."""

    student_ids_TK: Tensor
    """The likeliest first."""
    student_old_TK: Tensor
    """log pi_old at the student's ids."""
    student_teacher_HTK: Tensor
    """log pi_T^h at the student's ids."""
    asked: bool = True
    """Whether the teachers scored the student's ids; else each id that they did not score is NaN."""
    native_ids_HTK: Tensor
    """Each teacher's own top-K, the likeliest first."""
    native_teacher_HTK: Tensor
    """log pi_T^h at the teacher's ids."""
    sampled_teacher_HT: Tensor
    """log pi_T^h at the sampled ids."""
    old_at: Callable[[Tensor], Tensor]
    """log pi_old at any ids [T, K]."""
    native_valid_HTK: Tensor | None = None
    """False where the teacher's ids are padded; None: they are not."""

    @property
    def shared_HTK(self) -> Tensor:
        """The mask of the student's ids that are among the teacher's."""
        if not self.asked:
            return ~self.student_teacher_HTK.isnan()
        ids_HTK = self.student_ids_TK.expand(len(self.native_ids_HTK), -1, -1).contiguous()
        ordered_HTK = self.native_ids_HTK.sort(dim=-1).values  # K times K comparisons may be too many
        place_HTK = torch.searchsorted(ordered_HTK, ids_HTK).clamp(max=ordered_HTK.shape[-1] - 1)
        return ordered_HTK.gather(-1, place_HTK) == ids_HTK

    @property
    def overlap_HT(self) -> Tensor:
        """How many of the student's ids are among the teacher's."""
        return self.shared_HTK.sum(dim=-1)

    def pick(self, values_HT: Tensor, hint_T: Tensor) -> Tensor:
        """The chosen hint's values: [H, T, ...] and [T] give [T, ...]."""
        return values_HT[hint_T, torch.arange(len(hint_T), device=hint_T.device)]


def candidates(
    sample: Sample, logits_old_TV: Tensor, old_TV: Tensor, teachers: Iterable[Tensor], *, k: int
) -> Candidates:
    """Score the teachers, whose logits [T, V] are read one by one, against the old policy.

    `old_TV` are the log-probs of `logits_old_TV`. The order of ids is read off the logits themselves.
    ValueError unless there is one teacher per hint.
    """
    student_TK = top_k(logits_old_TV, k)
    outputs = []
    for teacher_TV in teachers:
        same_shape(logits_old_TV, "teacher", teacher_TV)
        logprobs_TV, native_TK = logprobs(teacher_TV, sample.tau), top_k(teacher_TV, student_TK.shape[-1])
        read = (at(logprobs_TV, ids) for ids in (student_TK, native_TK, sample.ids_T))
        outputs.append((native_TK, *read))
    if len(outputs) != sample.hints:
        raise ValueError(f"{sample.hints} hints but {len(outputs)} teachers")
    native, at_student, native_teacher, sampled = map(torch.stack, zip(*outputs, strict=True))
    return Candidates(
        student_ids_TK=student_TK,
        student_old_TK=at(old_TV, student_TK),
        student_teacher_HTK=at_student,
        native_ids_HTK=native,
        native_teacher_HTK=native_teacher,
        sampled_teacher_HT=sampled,
        old_at=partial(at, old_TV),
    )


def candidates_of_rows(
    teacher_rows: Sequence[TeacherRows],
    student_ids_TK: Tensor,
    old_T: Tensor,
    old_at: Callable[[Tensor], Tensor],
    student_old_TK: Tensor | None = None,
) -> Candidates:
    """The candidates of teachers that ran elsewhere, one per hint, whose own ids are the rows'.

    A token without a row has no gap: there the teacher agrees with the old policy.
    """
    sampled = [torch.where(each.distilled_T, each.sampled_T.to(old_T.dtype), old_T) for each in teacher_rows]
    return Candidates(
        student_ids_TK=student_ids_TK,
        student_old_TK=old_at(student_ids_TK) if student_old_TK is None else student_old_TK,
        student_teacher_HTK=torch.stack([each.at(student_ids_TK) for each in teacher_rows]).to(old_T.dtype),
        asked=all(each.asked_TJ is not None for each in teacher_rows),
        native_ids_HTK=torch.stack([each.ids_TK for each in teacher_rows]),
        native_teacher_HTK=torch.stack([each.logprobs_TK for each in teacher_rows]).to(old_T.dtype),
        native_valid_HTK=torch.stack([each.present_TK for each in teacher_rows]),
        sampled_teacher_HT=torch.stack(sampled),
        old_at=old_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLoss:
    """One sample's part of the batch's loss. Parts add up, and so do the terms."""

    loss: Tensor
    terms: dict[str, Tensor]
    """Each of `TERMS` before its weight, without gradient."""


def sample_loss(
    logits_TV: Tensor,
    sample: Sample,
    target: Target,
    over: Denominators,
    settings: ObjectiveSettings,
    *,
    logits_reference_TV: Tensor | None = None,
) -> SampleLoss:
    """The part of one sample in the loss of the global batch that `over` counts.

    `logits_TV` are the current policy's. `logits_reference_TV` are needed by an anchored sample if `beta` is
    above 0; if they are given, the KL to the reference is measured whatever its weight.
    """
    if len(logits_TV) != len(sample.ids_T):
        raise ValueError(f"{len(sample.ids_T)} ids but {len(logits_TV)} rows of logits")
    if settings.beta > 0 and sample.anchored and logits_reference_TV is None:
        raise ValueError(f"beta is {settings.beta}, but the reference's logits are missing")
    if logits_reference_TV is not None:
        same_shape(logits_TV, "reference", logits_reference_TV)
    now_TV = logprobs(logits_TV, sample.tau)
    now_TJ = at(now_TV, target.tokens.read_NJ)
    names = settings.terms_of(sample.carried)
    losses = {name: term_loss(name, now_TJ, target.tokens, settings) for name in names}
    losses["entropy"] = entropy(now_TV if settings.entropy_coef else now_TV.detach())
    if logits_reference_TV is not None and sample.anchored:
        with torch.no_grad():
            reference_TV = logprobs(logits_reference_TV, sample.tau)
        losses["reference_kl"] = reference_kl(now_TV if settings.beta else now_TV.detach(), reference_TV)
    return weighted(losses, sample, over, settings, zero=now_TJ[:, :0].sum())


def loss_at(
    sample: Sample,
    over: Denominators,
    settings: ObjectiveSettings,
    *,
    at: Callable[[Tensor, float], Tensor],
    top_k: Callable[[int], Tensor],
) -> SampleLoss:
    """As `sample_loss` of a sample whose teachers ran elsewhere, for logits that no process holds whole.

    They are the old policy's too. `at` gives their log-probs at ids [T, J] or [T] and a temperature, with the
    gradient; `top_k` the ids [T, K] of the largest.
    """
    with torch.no_grad():
        old_T, found = at(sample.ids_T, sample.tau), None
        if settings.has_opd and sample.taught:
            student_TK = top_k(settings.ids_kept)
            found = candidates_of_rows(
                sample.teacher_rows, student_TK, old_T, lambda ids: at(ids, sample.tau)
            )
        targets = target_of(sample, old_T, found, settings, lambda: at(sample.ids_T, 1.0)).tokens
    now_TJ = at(targets.read_NJ, sample.tau)
    losses = {name: term_loss(name, now_TJ, targets, settings) for name in settings.terms_of(sample.carried)}
    return weighted(losses, sample, over, settings, zero=now_TJ[:, :0].sum())


def weighted(
    losses: Mapping[str, Tensor],
    sample: Sample,
    over: Denominators,
    settings: ObjectiveSettings,
    *,
    zero: Tensor,
) -> SampleLoss:
    """A sample's loss of its terms [T]: each the mean over its tokens, divided and weighted. `zero` gives
    every sample a graph."""
    loss = zero
    terms = dict.fromkeys(TERMS, zero.detach())
    for name, loss_T in losses.items():
        mask_T = sample.mask_of(name)
        term = (token_weights(sample, name, over, loss_T.detach()) * loss_T)[mask_T].sum()
        terms[name] = term.detach()
        loss = loss + settings.weights[name] * term
    return SampleLoss(loss=loss, terms=terms)


def token_weights(sample: Sample, term: str, over: Denominators, like_T: Tensor) -> Tensor:
    """The weight [T] of each token in a term of the batch: the mean over the sample's tokens, divided by the
    term's denominator; 0 where the term does not teach. ValueError if the denominator is 0: then no sample
    can carry the term."""
    if over[term] < 1:
        raise ValueError(f"a sample carries {term}, but its denominator is {over[term]}")
    count = sample.mask_of(term).sum() * over[term]
    return sample.taught_by(term).to(like_T.dtype) / count
