"""The settings of the objectives, each default declared here once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from afterwit.objective.choices import AGGREGATIONS, BASELINES, HINT_RULES, OBJECTIVES, SUBSETS, HintRule
from afterwit.ranges import above, at_least, at_most, below, one_of, one_of_its_choices, within
from afterwit.verdict import Carried, Reads

WEIGHTS = ("w_rl", "w_opd", "entropy_coef", "beta")
RANGES = ("eps_lo", "eps_hi", "token_eps_lo", "token_eps_hi")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveSettings:
    """The loss that an update minimises, in the symbols of [the algorithm](algorithm.md)."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    TABLES: ClassVar[Mapping[str, Iterable[str]]] = {
        "objective": OBJECTIVES,
        "subset": SUBSETS,
        "hint_selection": HINT_RULES,
        "baseline": BASELINES,
        "aggregation": AGGREGATIONS,
    }
    """The table whose keys a setting accepts."""

    objective: str = "hybrid"
    """How rewards and hints train: `hybrid` by RL and top-K OPD, `hybrid_token` by RL and token OPD,
    `hybrid_distill` by RL and top-K distillation, `combine` by one surrogate of both, the others by one
    term."""
    w_rl: float = 0.2
    """Weight of RL, or of the reward in `combine`; 0: OPD only. At 1, as published, a model repeated itself
    in 3 of 48 answers, at 0.2 in none."""
    w_opd: float = 1.0
    """Weight of OPD, or of the teacher in `combine`; 0: RL only. As published."""
    k: int | None = None
    """Most likely ids kept per position. Unset, as published: 4, in top-K distillation 50."""
    subset: str = "student"
    """The kept ids that learn in top-K OPD: the student's, the teacher's, or their overlap."""
    hint_selection: str = "sequence_optimal"
    """The hint that teaches. `shortest`, `longest` and `random` score it alone; `sequence_optimal` takes the
    one whose teacher agrees most with the student over the response, `token_optimal` at each token."""
    routing: Literal["all", "routed"] = "all"
    """`all`: a turn learns by all its terms, as published. `routed`: a failed turn with a hint learns by OPD
    alone, a good one by RL alone, or not at all if the policy was sure."""
    confident_above: float = 0.95
    """Mean probability of the sampled tokens from which `routed` takes the policy as sure."""
    logprob_diff_clip: float = 1.0
    """C, nats: bound of |log pi_T - log pi_old| in top-K OPD, so that no id dominates; <= 0: off."""
    tail_bucket: bool = False
    """Adds the rest of the vocabulary as one more element; off as published."""
    eps_lo: float = 0.2
    """The ratio pi / pi_old is clipped below at 1 - eps_lo in RL, top-K OPD and combine."""
    eps_hi: float = 0.28
    """The ratio is clipped above at 1 + eps_hi; more room upward keeps rare tokens reachable."""
    token_eps_lo: float = 0.2
    """As eps_lo, for token OPD."""
    token_eps_hi: float = 0.2
    """As eps_hi, for token OPD, which is published with symmetric clipping."""
    baseline: str = "none"
    """Subtracted from the reward: nothing, a running mean, or the group's mean (then z-scored)."""
    baseline_decay: float = 0.9
    """Share of the running mean that an update keeps: 0.9 remembers about ten updates."""
    is_cap: float = 2.0
    """Cap of the importance weight pi_old / pi_b: less variance for some bias."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus; 0 as published."""
    beta: float = 0.1
    """Weight of KL(pi || reference), which keeps skills without a reward. 0 as published; in the demo's tools
    world 0.01 kept as little as 0."""
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
        """How a hint is chosen."""
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
        return OBJECTIVES[self.objective].reads_reward

    @property
    def has_opd(self) -> bool:
        """Whether the objective learns from a teacher, whatever its weight."""
        return OBJECTIVES[self.objective].reads_hint

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
