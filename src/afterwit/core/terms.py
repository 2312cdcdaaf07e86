"""Which terms of the loss a judged turn carries, or why it carries none.

| hint | reward  | RL  | OPD |
| ---- | ------- | --- | --- |
| yes  | +1 / -1 | yes | yes |
| yes  | 0       |     | yes |
| no   | +1 / -1 | yes |     |
| no   | 0       |     |     |

How it was sampled takes terms away. A response that was cut at its length keeps its OPD term, which speaks of
the tokens that were sampled and never of the end that is missing; its RL term stays only where evidence, not
a vote, decided the reward: a judge cannot tell a bad response from half of a good one.
"""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.core.lifecycle import Reason
from afterwit.core.turn import GREEDY_BELOW, Basis, Finish, Kind, Turn
from afterwit.core.verdict import Source, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFacts:
    """What the terms depend on."""

    reward: float
    hints: int
    """Hint candidates."""
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
    """The verdict came from evidence (a test, feedback, a schema), not from votes."""
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
    no_rl: Reason | None = None
    no_opd: Reason | None = None


def terms_of(facts: TurnFacts) -> Terms:
    """The terms that these facts allow. A greedy turn is scored at temperature 1."""
    no_rl, no_opd = _why_no_rl(facts), _why_no_opd(facts)
    tau = 1.0 if facts.tau < GREEDY_BELOW else facts.tau
    return Terms(rl=no_rl is None, opd=no_opd is None, tau=tau, no_rl=no_rl, no_opd=no_opd)


def _why_no_rl(facts: TurnFacts) -> Reason | None:
    if facts.penalised:
        return Reason.PENALTIES
    if facts.reward == 0:
        return Reason.NO_SIGNAL
    if facts.tau < GREEDY_BELOW:
        return Reason.GREEDY_WITHOUT_HINT
    if facts.truncated and not facts.processed:
        return Reason.TRUNCATED_SAMPLING_WITHOUT_HINT
    if facts.cut_off and not facts.evidence:
        return Reason.CUT_AT_LENGTH
    return None


def _why_no_opd(facts: TurnFacts) -> Reason | None:
    if facts.penalised:
        return Reason.PENALTIES
    if facts.hints == 0:
        return Reason.NO_SIGNAL
    if not facts.renders:
        return Reason.RENDER_MISMATCH
    return None


def facts_of(turn: Turn, verdict: Verdict) -> TurnFacts:
    """The facts of a judged turn."""
    return TurnFacts(
        reward=verdict.reward,
        hints=len(verdict.hints),
        tau=turn.sampling.temperature,
        truncated=turn.sampling.truncated,
        processed=turn.sampled.basis is Basis.PROCESSED,
        penalised=turn.sampling.penalised,
        cut_off=turn.finish is Finish.LENGTH,
        evidence=verdict.source is not Source.VOTES,
    )


def untrainable(turn: Turn) -> Reason | None:
    """Why no verdict could make this turn train; None where one could. Known when it has been served."""
    reasons = {
        Reason.CLIENT_LEFT: turn.finish is Finish.CLIENT_LEFT,
        Reason.SIDE_TURN: turn.kind is Kind.SIDE,
        Reason.UNKNOWN_BRANCH: turn.kind is Kind.UNKNOWN,
        Reason.KEY_DOES_NOT_TEACH: not turn.teaches,
        Reason.PENALTIES: turn.sampling.penalised,
        Reason.EMPTY_RESPONSE: not turn.sampled.ids,
        Reason.ALL_FORCED: all(turn.sampled.forced),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def terms(turn: Turn, verdict: Verdict) -> tuple[bool, bool] | Reason:
    """Whether the turn carries an RL and an OPD term; the reason of its end where it carries neither."""
    if (reason := untrainable(turn)) is not None:
        return reason
    carried = terms_of(facts_of(turn, verdict))
    if carried.rl or carried.opd:
        return carried.rl, carried.opd
    return (carried.no_rl if verdict.reward else carried.no_opd) or Reason.NO_SIGNAL
