"""The settings of hindsight over whole rollouts, each default declared here once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from afterwit.engines.port import Weights
from afterwit.objective.choices import HINT_RULES, HintRule
from afterwit.ranges import at_least, one_of_its_choices, within
from afterwit.terms import Reads


@dataclass(frozen=True, slots=True, kw_only=True)
class HindsightSettings:
    """Who teaches, by which hint, and how much of it is told. How turns are judged is `JudgeSettings`."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    top_k: int = 50
    """Ids in a row of the teacher, the sampled one among them; 50 as published. An engine that tells fewer
    gives narrower rows, and that is said once."""
    weights: Weights = Weights.LIVE
    """Whose weights teach: the policy's own, as published, or the frozen starting ones."""
    hint_selection: Literal["longest", "shortest", "sequence_optimal", "token_optimal"] = "longest"
    """Which hint teaches if there are several: `longest` as published. The last two ask the teacher about
    each, and the policy itself."""
    overlap_k: int = 4
    """Ids of policy and teacher that `sequence_optimal` and `token_optimal` compare."""
    doubtful_hints: bool = False
    """Whether hints teach that name an address or a command which no person named, or order something beyond
    the turn, as published. Text that a tool returned can plant such a hint, and nobody reviews a rollout."""
    attempts: int = 3
    """Times a teacher that does not answer is asked before its turns count as not scored."""
    max_unscored_share: float = 0.5
    """Share of turns that may fail to be scored before the run stops with the reason. A turn that taught
    nothing (nothing followed, no hint) did not fail."""
    unscored_after: int = 24
    """Turns below which a share says nothing."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        at_least(self, 1, "top_k", "overlap_k", "attempts", "unscored_after")
        within(self, 0, 1, "max_unscored_share")

    @property
    def hint_rule(self) -> HintRule:
        return HINT_RULES[self.hint_selection]

    @property
    def reads(self) -> Reads:
        """What is read of a verdict: hints alone. The reward of a rollout is its task's."""
        return Reads(rl=False, keeps_longest=self.hint_rule.keeps_longest)
