"""The settings of hindsight over whole rollouts, each default declared here once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from afterwit.api.judging import HINT_RULES, HintRule, Reads
from afterwit.api.serving import Weights
from afterwit.api.settings import at_least, one_of_its_choices, within


@dataclass(frozen=True, slots=True, kw_only=True)
class HindsightSettings:
    """The teacher's weights, choice of hint and size of rows. `JudgeSettings` is for judging."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    top_k: int = 50
    """Ids in a teacher's row, the sampled one included; 50 as published. If the engine returns fewer, rows
    are narrower, which is logged once."""
    weights: Weights = Weights.LIVE
    """The teacher's weights: the policy's own, as published, or the frozen first ones."""
    hint_selection: Literal["longest", "shortest", "sequence_optimal", "token_optimal"] = "longest"
    """The hint that teaches if there are several; `longest` as published. `sequence_optimal` and
    `token_optimal` ask the teacher about each, and the policy too."""
    overlap_k: int = 4
    """Ids of policy and teacher that `sequence_optimal` and `token_optimal` compare."""
    doubtful_hints: bool = False
    """Whether hints teach, as published, that name an address or command which no person named, or that order
    something beyond the turn. Tools can plant such a hint, and rollouts are not reviewed."""
    attempts: int = 3
    """Tries of a teacher that does not answer before its turns count as not scored."""
    max_unscored_share: float = 0.5
    """Share of turns that may fail to be scored before the run stops with the reason. A turn without a next
    state or hint did not fail."""
    unscored_after: int = 24
    """Turns before this share is checked."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        at_least(self, 1, "top_k", "overlap_k", "attempts", "unscored_after")
        within(self, 0, 1, "max_unscored_share")

    @property
    def hint_rule(self) -> HintRule:
        return HINT_RULES[self.hint_selection]

    @property
    def reads(self) -> Reads:
        """Only hints are read from a verdict. The reward of a rollout is its task's."""
        return Reads(rl=False, keeps_longest=self.hint_rule.keeps_longest)
