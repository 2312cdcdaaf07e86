"""The terms of the loss that a judged turn carries and learns by, or why it carries none.

| hint | reward  | RL  | OPD |
| ---- | ------- | --- | --- |
| yes  | +1 / -1 | yes | yes |
| yes  | 0       |     | yes |
| no   | +1 / -1 | yes |     |
| no   | 0       |     |     |

Sampling takes terms away. A response that was cut at its length keeps its OPD term, which covers only the
sampled tokens. It keeps its RL term only if evidence, not a vote, decided the reward: a judge cannot tell a
bad response from half of a good one.

If turns are routed (SRPO, arXiv:2604.02288), a turn learns by fewer terms than it carries:

| reward | RL                              | OPD |
| ------ | ------------------------------- | --- |
| -1     | only without OPD                | yes |
| 0      |                                 | yes |
| +1     | unless the policy was confident |     |

A failure's hint teaches more than its number. A success needs no correction, and one that the policy was
confident of has little left to teach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from afterwit.lifecycle import Reason
from afterwit.turn import Basis, Finish, Kind, RecordedTurn, Turn, is_greedy
from afterwit.verdict import Source, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The terms that a turn carries, and why it does not train; None: it trains."""

    rl: bool = False
    opd: bool = False
    reason: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFacts:
    """The facts that decide the terms."""

    reward: float
    hints: int
    """Number of hint candidates."""
    tau: float
    """The sampling temperature."""
    truncated: bool = False
    """Sampled with top-p, top-k or min-p."""
    processed: bool = True
    """The log-probs are those of the distribution that was sampled from: after temperature and truncation."""
    penalised: bool = False
    """Sampled with penalties or a logit bias."""
    cut_off: bool = False
    """`finish_reason = length`: the end of the turn is missing."""
    evidence: bool = False
    """Feedback, a test, a schema or a failed call decided the reward, not votes or a reading."""

    def __post_init__(self) -> None:
        if self.hints < 0:
            raise ValueError(f"{self.hints} hints: a count cannot be negative")
        if not self.tau >= 0:
            raise ValueError(f"tau is {self.tau}, but a temperature is at least 0")


def terms_of(facts: TurnFacts) -> Carried:
    """The terms that these facts allow."""
    if facts.penalised:
        return Carried(reason=Reason.PENALTIES)
    no_rl = _why_no_rl(facts)
    if facts.hints:
        return Carried(rl=no_rl is None, opd=True)
    return Carried(rl=no_rl is None, reason=no_rl)


def _why_no_rl(facts: TurnFacts) -> Reason | None:
    if facts.reward == 0:
        return Reason.NO_SIGNAL
    if is_greedy(facts.tau):
        return Reason.GREEDY_WITHOUT_HINT
    if facts.truncated and not facts.processed:
        return Reason.TRUNCATED_SAMPLING_WITHOUT_HINT
    if facts.cut_off and not facts.evidence:
        return Reason.CUT_AT_LENGTH
    return None


def untrainable(turn: RecordedTurn) -> Reason | None:
    """Why no verdict can make this turn train; None if one can. Known as soon as the turn is recorded."""
    if not isinstance(turn, Turn):
        return Reason.NOT_SAMPLED_HERE
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


def unjudged(turn: RecordedTurn) -> Reason | None:
    """Why the judge is not asked about a turn; None: it is. Imported turns are judged to be shown."""
    reason = untrainable(turn)
    return None if reason is Reason.NOT_SAMPLED_HERE else reason


def carried(turn: Turn, verdict: Verdict) -> Carried:
    """The terms that a judged turn carries under an objective that reads both."""
    if (reason := untrainable(turn)) is not None:
        return Carried(reason=reason)
    return terms_of(
        TurnFacts(
            reward=verdict.reward,
            hints=len(verdict.hints),
            tau=turn.sampling.temperature,
            truncated=turn.sampling.truncated,
            processed=turn.sampled.basis is Basis.PROCESSED,
            penalised=turn.sampling.penalised,
            cut_off=turn.finish is Finish.LENGTH,
            evidence=verdict.source not in (Source.VOTES, Source.READ),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The parts of a verdict that an objective reads."""

    rl: bool = True
    """Rewards move the policy."""
    opd: bool = True
    """Hints move the policy."""
    confident_above: float | None = None
    """Turns are routed, and the policy was confident from this mean probability on. None: not routed."""
    keeps_longest: bool = False
    """Only the longest hint is read."""

    @property
    def reward(self) -> bool:
        """Whether a turn's reward matters: it is learned from, or routes the turn."""
        return self.rl or self.confident_above is not None

    def of(self, turn: RecordedTurn, verdict: Verdict) -> Carried:
        """The terms that a judged turn carries, and why it ends; no reason: it goes on to the learner."""
        if not isinstance(turn, Turn):
            return Carried(reason=Reason.NOT_SAMPLED_HERE)
        found = carried(turn, verdict)
        if found.reason is not None:
            return _unread(found, verdict)
        sampled = turn.sampled
        sure = confidence(sampled.logprobs, sampled.forced)
        learned = self.learned(found, reward=verdict.reward, confidence=sure)
        return _unread(replace(found, reason=learned.reason), verdict)

    def learned(self, turn: Carried, *, reward: float, confidence: float | None) -> Carried:
        """The terms that a turn learns by, and why they do not move the policy."""
        taken = turn
        if self.confident_above is not None:
            within = Carried(rl=turn.rl and self.rl, opd=turn.opd and self.opd)
            taken = _routed(within, reward, confidence, self.confident_above)
        return replace(taken, reason=None if self.moves(taken) else self._why_not(turn))

    def moves(self, turn: Carried) -> bool:
        """Whether any of these terms moves the policy."""
        return (turn.rl and self.rl) or (turn.opd and self.opd)

    def _why_not(self, turn: Carried) -> Reason:
        if not self.moves(turn):
            return Reason.NO_SIGNAL
        return Reason.ALREADY_CONFIDENT if turn.rl and self.rl else Reason.ALREADY_GOOD


def _unread(found: Carried, verdict: Verdict) -> Carried:
    """The same, with another reason if there is no signal because all votes on a question were invalid."""
    if found.reason is not Reason.NO_SIGNAL or not verdict.unread:
        return found
    return replace(found, reason=Reason.INVALID_VOTES)


def _routed(turn: Carried, reward: float, confidence: float | None, confident_above: float) -> Carried:
    if reward > 0:
        confident = confidence is not None and confidence >= confident_above
        return Carried(rl=turn.rl and not confident)
    return Carried(rl=turn.rl and not turn.opd, opd=turn.opd)


def confidence(logprobs: Sequence[float], forced: Sequence[bool]) -> float | None:
    """The mean probability of the tokens that were sampled; None if all were forced."""
    sampled = [math.exp(min(value, 0.0)) for value, fixed in zip(logprobs, forced, strict=True) if not fixed]
    return math.fsum(sampled) / len(sampled) if sampled else None
