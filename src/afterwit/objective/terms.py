"""Which terms a turn carries, decided from facts about it.

Imports no torch: the stages that only sort turns call it too.
"""

from __future__ import annotations

from dataclasses import dataclass

from .settings import ObjectiveSettings

GREEDY_BELOW = 0.05
"""A sampling temperature below this is greedy decoding: its log-probs say nothing about what was sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFacts:
    """What is known of a judged turn before its logits are computed."""

    reward: float
    hints: int
    """Hint candidates whose spliced prompt fits the context."""
    tau: float
    truncated: bool = False
    """Sampled with top-p, top-k or min-p."""
    processed: bool = True
    """The log-probs are of the distribution that was sampled from: after temperature and truncation."""
    penalised: bool = False
    """Sampled with penalties or a logit bias."""
    cut_off: bool = False
    """`finish_reason = length`: the end of the turn is missing."""
    evidence: bool = False
    """The verdict came from evidence (a test, feedback), not from votes."""
    renders: bool = True
    """Rendering the turn anew gives its stored prompt ids; without it no hint can be spliced."""

    def __post_init__(self) -> None:
        if self.hints < 0:
            raise ValueError(f"{self.hints} hints: a count cannot be negative")
        if not self.tau >= 0:
            raise ValueError(f"tau is {self.tau}, but a temperature is at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms a turn carries, the temperature of all its log-probs, and why a term is missing."""

    rl: bool
    opd: bool
    tau: float
    no_rl: str | None = None
    no_opd: str | None = None

    def trains_under(self, settings: ObjectiveSettings) -> bool:
        """Whether this objective learns anything from the turn."""
        rl = self.rl and settings.has_rl and settings.w_rl > 0
        return rl or (self.opd and settings.needs_teacher)


def terms_of(turn: TurnFacts) -> Terms:
    """The terms of a turn. A greedy turn is scored at temperature 1."""
    no_rl, no_opd = _why_no_rl(turn), _why_no_opd(turn)
    tau = 1.0 if turn.tau < GREEDY_BELOW else turn.tau
    return Terms(rl=no_rl is None, opd=no_opd is None, tau=tau, no_rl=no_rl, no_opd=no_opd)


def _why_no_rl(turn: TurnFacts) -> str | None:
    if turn.penalised:
        return "penalised"
    if turn.reward == 0:
        return "no_reward"
    if turn.tau < GREEDY_BELOW:
        return "greedy"
    if turn.truncated and not turn.processed:
        return "truncated_raw"
    if turn.cut_off and not turn.evidence:
        return "cut_off"
    return None


def _why_no_opd(turn: TurnFacts) -> str | None:
    if turn.penalised:
        return "penalised"
    if turn.hints == 0:
        return "no_hint"
    if not turn.renders:
        return "render_mismatch"
    return None
