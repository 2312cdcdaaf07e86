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


def terms_of(
    *,
    reward: float,
    hints: int,
    tau: float,
    truncated: bool = False,
    processed: bool = True,
    penalised: bool = False,
    cut_off: bool = False,
    evidence: bool = False,
) -> Carried:
    """The terms of a turn with this reward, so many hint candidates, and a sampling temperature `tau`.

    `truncated`: sampled with top-p, top-k or min-p; `processed`: its log-probs are those after temperature
    and truncation; `penalised`: sampled with penalties or a logit bias; `cut_off`: its end is missing;
    `evidence`: feedback, a test, a schema or a failed call decided the reward, not votes or a reading.
    """
    if not tau >= 0:
        raise ValueError(f"tau is {tau}, but a temperature is at least 0")
    if penalised:
        return Carried(reason=Reason.PENALTIES)
    no_rl = None
    if reward == 0:
        no_rl = Reason.NO_SIGNAL
    elif is_greedy(tau):
        no_rl = Reason.GREEDY_WITHOUT_HINT
    elif truncated and not processed:
        no_rl = Reason.TRUNCATED_SAMPLING_WITHOUT_HINT
    elif cut_off and not evidence:
        no_rl = Reason.CUT_AT_LENGTH
    return Carried(rl=no_rl is None, opd=hints > 0, reason=None if hints else no_rl)


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
        reward=verdict.reward,
        hints=len(verdict.hints),
        tau=turn.sampling.temperature,
        truncated=turn.sampling.truncated,
        processed=turn.sampled.basis is Basis.PROCESSED,
        penalised=turn.sampling.penalised,
        cut_off=turn.finish is Finish.LENGTH,
        evidence=verdict.source not in (Source.VOTES, Source.READ),
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
        found, sampled = carried(turn, verdict), turn.sampled
        reason = found.reason
        if reason is None:
            sure = confidence(sampled.logprobs, sampled.forced)
            reason = self.learned(found, reward=verdict.reward, confidence=sure).reason
        if reason is Reason.NO_SIGNAL and verdict.unread:  # all votes on a question were invalid
            reason = Reason.INVALID_VOTES
        return replace(found, reason=reason)

    def learned(self, turn: Carried, *, reward: float, confidence: float | None) -> Carried:
        """The terms that a turn learns by, and why they do not move the policy."""
        rl, opd = turn.rl and self.rl, turn.opd and self.opd
        taken = Carried(rl=turn.rl, opd=turn.opd)
        if self.confident_above is not None and reward > 0:
            sure = confidence is not None and confidence >= self.confident_above
            taken = Carried(rl=rl and not sure)
        elif self.confident_above is not None:
            taken = Carried(rl=rl and not opd, opd=opd)
        if self.moves(taken):
            return taken
        if rl or opd:
            return replace(taken, reason=Reason.ALREADY_CONFIDENT if rl else Reason.ALREADY_GOOD)
        return replace(taken, reason=Reason.NO_SIGNAL)

    def moves(self, turn: Carried) -> bool:
        """Whether any of these terms moves the policy."""
        return (turn.rl and self.rl) or (turn.opd and self.opd)


def confidence(logprobs: Sequence[float], forced: Sequence[bool]) -> float | None:
    """The mean probability of the tokens that were sampled; None if all were forced."""
    sampled = [math.exp(min(value, 0.0)) for value, fixed in zip(logprobs, forced, strict=True) if not fixed]
    return math.fsum(sampled) / len(sampled) if sampled else None
