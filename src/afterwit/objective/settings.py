"""The objectives and their settings: which terms a turn's reward and hint become, and each default, once.

`terms` computes the terms. Torch is imported for the type checker alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import inf
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from afterwit import plugins
from afterwit.ranges import above, at_least, at_most, below, one_of, one_of_its_choices, within
from afterwit.verdict import Carried, Reads

if TYPE_CHECKING:
    from torch import Tensor

    from afterwit.objective.sample import Candidates

TERMS = ("rl", "opd", "combine", "entropy", "reference_kl")
"""The terms as they are reported. `opd` is any distillation, `combine` reads reward and hint together."""

Aggregation = Callable[[Sequence[Sequence[str]], Iterable[str]], dict[str, int]]
"""(the terms of each sample in the global batch, the objective's terms) -> each term's denominator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One value of the setting `objective`."""

    terms: Mapping[str, str]
    """Reported term -> its name in `afterwit.objective.terms.TERMS`."""
    k: int = 4
    """Ids kept per position if the setting `k` is not given; as published."""

    def __post_init__(self) -> None:
        for reported in self.terms:
            if reported not in TERMS[:3]:
                raise ValueError(f"an objective reports {', '.join(TERMS[:3])}, not {reported}")


_OBJECTIVES = {
    "hybrid": Objective(terms={"rl": "rl", "opd": "topk_opd"}),
    "topk_opd": Objective(terms={"opd": "topk_opd"}),
    "token_opd": Objective(terms={"opd": "token_opd"}),
    "topk_distill": Objective(terms={"opd": "topk_distill"}, k=50),
    "hybrid_token": Objective(terms={"rl": "rl", "opd": "token_opd"}),
    "hybrid_distill": Objective(terms={"rl": "rl", "opd": "topk_distill"}, k=50),
    "combine": Objective(terms={"combine": "combine"}),
    "rl": Objective(terms={"rl": "rl"}),
}
OBJECTIVES = plugins.Table(plugins.OBJECTIVES, Objective, _OBJECTIVES)


Members = tuple["Tensor", "Tensor", "Tensor", "Tensor | None"]
"""The ids of a subset with log pi_old and the chosen hint's log pi_T, each [T, K]; then False for an id that
is not in the subset, or None: all are."""
Subset = Callable[["Candidates", "Tensor"], Members]
"""(candidates, the chosen hint [T]) -> the ids that learn."""


def _student(found: Candidates, hint_T: Tensor) -> Members:
    if not found.asked:
        raise ValueError("the teacher did not score the student's ids: subset must be 'teacher' or 'overlap'")
    return found.student_ids_TK, found.student_old_TK, found.pick(found.student_teacher_HTK, hint_T), None


def _teacher(found: Candidates, hint_T: Tensor) -> Members:
    ids_TK = found.pick(found.native_ids_HTK, hint_T)
    valid_TK = None if found.native_valid_HTK is None else found.pick(found.native_valid_HTK, hint_T)
    return ids_TK, found.old_at(ids_TK), found.pick(found.native_teacher_HTK, hint_T), valid_TK


def _overlap(found: Candidates, hint_T: Tensor) -> Members:
    teacher_TK, shared_TK = (
        found.pick(each, hint_T) for each in (found.student_teacher_HTK, found.shared_HTK)
    )
    return found.student_ids_TK, found.student_old_TK, teacher_TK, shared_TK


SUBSETS: dict[str, Subset] = {"student": _student, "teacher": _teacher, "overlap": _overlap}


def _component(carried: Sequence[Sequence[str]], terms: Iterable[str]) -> dict[str, int]:
    every = [term for sample in carried for term in sample]
    return {term: every.count(term) for term in terms}


AGGREGATIONS: dict[str, Aggregation] = {
    "component": _component,
    "batch": lambda carried, terms: dict.fromkeys(terms, len(carried)),
}
"""`component`: a term is divided by the samples that carry it; `batch`: by all of them."""


class Rewarded(NamedTuple):
    """A sample's reward and what its baseline reads."""

    reward: float
    group: Sequence[float] = ()
    """The rewards of all judged samples of the prompt, this one and zeros included; `()`: no group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One value of the setting `baseline`."""

    advantage: Callable[[Rewarded, float], float | None]
    """(sample, running mean) -> advantage. None: the sample carries no RL term, and counts in none."""
    reads_group: bool = False
    """Whether the rewards of the prompt's other samples are read."""
    moves_mean: bool = False
    """Whether the batch's rewards move the running mean."""


def _group(sample: Rewarded, mean: float) -> float | None:
    """(r - mean) / standard deviation (n - 1) of the group (GRPO, Shao et al. 2024).

    A sample without company keeps its reward. A group whose rewards agree has no signal: None, as in DAPO
    (Yu et al. 2025), so that it does not shrink the gradient of other groups.
    """
    if len(sample.group) < 2:
        return sample.reward
    spread = stdev(sample.group)
    return (sample.reward - fmean(sample.group)) / spread if spread > 0 else None


BASELINES = {
    "none": Baseline(advantage=lambda sample, mean: sample.reward),
    "running": Baseline(advantage=lambda sample, mean: sample.reward - mean, moves_mean=True),
    "group": Baseline(advantage=_group, reads_group=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HintRule:
    """One value of the setting `hint_selection`: either `known` or `score` is given."""

    known: Callable[[Sequence[int], Sequence[int]], int] | None = None
    """(characters of each hint, the response's ids) -> the hint. No other hint's teacher runs."""
    score: Callable[[Candidates], Tensor] | None = None
    """The candidates' scores [H, T]; the largest is chosen."""
    score_ids: Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], Sequence[float]] | None = None
    """`score` of one hint [T] without tensors, for rollouts: from the likeliest ids `[T][K]` of the student
    and of the hint's teacher. None: a rollout cannot be scored by this rule."""
    per_token: bool = False
    """Whether each token has its own hint. Else the scores of the tokens that train are summed."""
    keeps_longest: bool = False
    """Of more hints than the judge keeps, the longest stay, not the shortest."""

    def __post_init__(self) -> None:
        if (self.known is None) == (self.score is None):
            raise ValueError("a hint rule needs either `known` or `score`")

    def teachers(self, lengths: Sequence[int], ids: Sequence[int]) -> tuple[int, ...]:
        """The hints whose teachers have to run. ValueError if the rule chose none of them."""
        if self.known is None or len(lengths) < 2:
            return tuple(range(len(lengths)))
        if (hint := self.known(lengths, ids)) not in range(len(lengths)):
            raise ValueError(f"a hint rule chose hint {hint}, but the hints are 0 to {len(lengths) - 1}")
        return (hint,)

    def choose(self, candidates: Candidates, mask_T: Tensor) -> Tensor:
        """h* [T]: the chosen hint of each position; a NaN is the least score. ValueError if teachers ran that
        the rule never reads, or if its scores are not [H, T]."""
        hints, tokens = candidates.sampled_teacher_HT.shape
        if hints == 1:
            return mask_T.long() * 0
        if self.score is None:
            raise ValueError(f"{hints} teachers ran, but the hint is chosen before any of them")
        score_HT = self.score(candidates)
        if (shape := shape_of(score_HT)) != [hints, tokens]:
            raise ValueError(f"a hint rule's scores are {shape}, but must be [{hints}, {tokens}]")
        score_HT = score_HT.masked_fill(score_HT.isnan(), -inf) if score_HT.is_floating_point() else score_HT
        if self.per_token:
            return score_HT.argmax(dim=0)
        return score_HT.masked_fill(~mask_T, 0).sum(dim=1).argmax().expand(tokens)

    def choose_by_ids(
        self,
        student_TK: Sequence[Sequence[int]],
        teachers_HTK: Sequence[Sequence[Sequence[int]]],
        mask_T: Sequence[bool],
    ) -> tuple[int, ...]:
        """`choose`, without tensors, from the likeliest ids of the student and of each hint's teacher."""
        hints, tokens = len(teachers_HTK), len(mask_T)
        if hints == 1:
            return (0,) * tokens
        if self.score is None:
            raise ValueError(f"{hints} teachers ran, but the hint is chosen before any of them")
        if self.score_ids is None:
            raise ValueError("this hint rule has no `score_ids`: it needs more than the likeliest ids")
        score_HT = [self.score_ids(student_TK, each) for each in teachers_HTK]
        if self.per_token:
            return tuple(_first_largest(score_H) for score_H in zip(*score_HT, strict=True))
        totals = [sum(value for value, inside in zip(row, mask_T, strict=True) if inside) for row in score_HT]
        return (_first_largest(totals),) * tokens


def shape_of(value: Any) -> list[int] | str:
    """A tensor's shape; the type of anything else that a package returned in its place."""
    return list(value.shape) if hasattr(value, "shape") else type(value).__name__


def _first_largest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def _random(lengths: Sequence[int], ids: Sequence[int]) -> int:
    """Each as likely, the same for the same ids: their SHA-256 as little-endian 64-bit integers, of which the
    first eight bytes, big-endian, modulo the number of hints."""
    digest = sha256(struct.pack(f"<{len(ids)}q", *ids)).digest()
    return int.from_bytes(digest[:8], "big") % len(lengths)


def _overlap_ids(student_TK: Sequence[Sequence[int]], teacher_TK: Sequence[Sequence[int]]) -> list[int]:
    return [
        len({*student_K} & {*teacher_K}) for student_K, teacher_K in zip(student_TK, teacher_TK, strict=True)
    ]


_OVERLAP = HintRule(score=lambda candidates: candidates.overlap_HT, score_ids=_overlap_ids)
_HINT_RULES = {
    "shortest": HintRule(known=lambda lengths, ids: 0),
    "longest": HintRule(known=lambda lengths, ids: _first_largest(lengths), keeps_longest=True),
    "random": HintRule(known=_random),
    "sequence_optimal": _OVERLAP,
    "token_optimal": replace(_OVERLAP, per_token=True),
}
HINT_RULES = plugins.Table(plugins.HINT_RULES, HintRule, _HINT_RULES)


WEIGHTS = ("w_rl", "w_opd", "entropy_coef", "beta")
RANGES = ("eps_lo", "eps_hi", "token_eps_lo", "token_eps_hi")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveSettings:
    """The loss, in the symbols of [the algorithm](algorithm.md)."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}
    """For the settings of other packages, which may have it as a section."""

    TABLES: ClassVar[Mapping[str, Iterable[str]]] = {
        "objective": OBJECTIVES,
        "subset": SUBSETS,
        "hint_selection": HINT_RULES,
        "baseline": BASELINES,
        "aggregation": AGGREGATIONS,
    }
    """The table whose keys a setting accepts."""

    objective: str = "hybrid"
    """The terms by which rewards and hints train; see [the loss](algorithm.md#the-loss)."""
    w_rl: float = 0.2
    """Weight of RL, or of the reward in `combine`. With 1, as published, a model repeated itself in 3 of 48
    answers."""
    w_opd: float = 1.0
    """Weight of OPD, or of the teacher in `combine`; as published."""
    k: int | None = None
    """Most likely ids kept per position. Unset, as published: 4, in top-K distillation 50."""
    subset: str = "student"
    """The ids that learn in top-K OPD."""
    hint_selection: str = "sequence_optimal"
    """The hint that teaches: the `shortest`, `longest`, a `random` one, or the one whose teacher agrees
    most with the student over the response (`sequence_optimal`) or at each token (`token_optimal`)."""
    routing: Literal["all", "routed"] = "all"
    """`all`: a turn learns by all its terms, as published. `routed`: [by
    one](algorithm.md#routing-verdictpy)."""
    confident_above: float = 0.95
    """Mean probability of the sampled tokens at which `routed` counts the policy as sure."""
    logprob_diff_clip: float = 1.0
    """C, nats: bound of |log pi_T - log pi_old| in top-K OPD; <= 0: off."""
    tail_bucket: bool = False
    """Adds the rest of the vocabulary as one more element; off as published."""
    eps_lo: float = 0.2
    """The ratio pi / pi_old is clipped below at 1 - eps_lo in RL, top-K OPD and combine."""
    eps_hi: float = 0.28
    """The ratio is clipped above at 1 + eps_hi."""
    token_eps_lo: float = 0.2
    """As eps_lo, for token OPD."""
    token_eps_hi: float = 0.2
    """As eps_hi, for token OPD."""
    baseline: str = "none"
    """Subtracted from the reward: nothing (`none`), a running mean (`running`), or the group's mean
    (`group`, a z-score)."""
    baseline_decay: float = 0.9
    """Share of the running mean that an update keeps."""
    is_cap: float = 2.0
    """Cap of the importance weight pi_old / pi_b."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus; 0 as published."""
    beta: float = 0.1
    """Weight of KL(pi || reference), which keeps skills that no reward protects; 0 as published."""
    aggregation: str = "component"
    """A term is divided by the samples that carry it (`component`) or by all (`batch`, as published)."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        for name, table in self.TABLES.items():
            one_of(self, table, name)
        at_least(self, 0, *WEIGHTS, *RANGES, "baseline_decay")
        below(self, inf, *WEIGHTS)
        at_most(self, inf, "logprob_diff_clip")
        at_least(self, 1, "k")
        below(self, 1, "baseline_decay")
        within(self, 0, 1, "confident_above")
        above(self, 0, "is_cap")
        at_most(self, 1, "eps_lo", "token_eps_lo")
        if self.k is not None and type(self.k) is not int:
            raise ValueError(f"k is {self.k}, but must be a whole number")

    @property
    def ids_kept(self) -> int:
        """K: the setting, or what is published for the objective."""
        return OBJECTIVES[self.objective].k if self.k is None else self.k

    @property
    def terms(self) -> Mapping[str, str]:
        """The terms that rewards and hints become, whatever their weights, with the file of each."""
        return OBJECTIVES[self.objective].terms

    def terms_of(self, sample: Carried) -> list[str]:
        """The terms that a sample's reward and hints become."""
        carried = {"rl": sample.rl, "opd": sample.opd, "combine": self.reads.moves(sample)}
        return [term for term in self.terms if carried[term]]

    @property
    def hint_rule(self) -> HintRule:
        return HINT_RULES[self.hint_selection]

    @property
    def reads_groups(self) -> bool:
        """Whether a turn's advantage depends on the other turns of its prompt."""
        return BASELINES[self.baseline].reads_group

    @property
    def weights(self) -> dict[str, float]:
        """The factor of each reported term. The weights of `combine` are inside its advantage."""
        return {
            "rl": self.w_rl,
            "opd": self.w_opd,
            "combine": 1.0,
            "entropy": -self.entropy_coef,
            "reference_kl": self.beta,
        }

    @property
    def has_rl(self) -> bool:
        """Whether the objective learns from rewards, whatever their weight."""
        return not {"rl", "combine"}.isdisjoint(OBJECTIVES[self.objective].terms)

    @property
    def has_opd(self) -> bool:
        """Whether the objective learns from a teacher, whatever its weight."""
        return not {"opd", "combine"}.isdisjoint(OBJECTIVES[self.objective].terms)

    @property
    def reads(self) -> Reads:
        """The parts of a verdict that the objective reads: not those of terms with weight 0."""
        return Reads(
            rl=self.has_rl and self.w_rl > 0,
            opd=self.needs_teacher,
            confident_above=self.confident_above if self.routing == "routed" else None,
            keeps_longest=self.hint_rule.keeps_longest,
        )

    @property
    def needs_teacher(self) -> bool:
        """Whether hint candidates need to be scored at all."""
        return self.has_opd and self.w_opd > 0
