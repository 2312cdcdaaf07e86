"""The objectives: which terms a turn's reward and hint become, and which file of `terms` computes each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TERMS = ("rl", "opd", "combine", "entropy", "reference_kl")
"""The terms as they are reported. `opd` is any distillation, `combine` reads reward and hint together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One value of the setting `objective`."""

    terms: Mapping[str, str]
    """Reported term -> its name in `afterwit.objective.terms.TERMS`."""
    k: int = 4
    """Ids kept per position if the setting `k` is not given; as published."""

    @property
    def reads_reward(self) -> bool:
        return "rl" in self.terms or "combine" in self.terms

    @property
    def reads_hint(self) -> bool:
        return "opd" in self.terms or "combine" in self.terms


OBJECTIVES = {
    "hybrid": Objective(terms={"rl": "rl", "opd": "topk_opd"}),
    "topk_opd": Objective(terms={"opd": "topk_opd"}),
    "token_opd": Objective(terms={"opd": "token_opd"}),
    "topk_distill": Objective(terms={"opd": "topk_distill"}, k=50),
    "hybrid_token": Objective(terms={"rl": "rl", "opd": "token_opd"}),
    "hybrid_distill": Objective(terms={"rl": "rl", "opd": "topk_distill"}, k=50),
    "combine": Objective(terms={"combine": "combine"}),
    "rl": Objective(terms={"rl": "rl"}),
}
