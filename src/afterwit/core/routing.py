"""Which of the terms it carries a turn learns by, where turns are routed (SRPO, arXiv:2604.02288).

| reward | RL                         | OPD |
| ------ | -------------------------- | --- |
| -1     | only without OPD           | yes |
| 0      |                            | yes |
| +1     | unless the policy was sure |     |

A failure's hint says more than its number, a success needs no correction, and of a success that the policy
was sure of little is left to learn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from afterwit.core.turn import Turn
from afterwit.core.verdict import Verdict


class Brought(NamedTuple):
    """What a judged turn brings to the objective."""

    rl: bool
    """It carries an RL term."""
    opd: bool
    """It carries an OPD term."""
    reward: float
    confidence: float | None
    """How sure the policy was; None where that is not known."""


def brought(turn: Turn, verdict: Verdict, *, rl: bool, opd: bool) -> Brought:
    """What a turn that carries these terms brings."""
    sure = confidence(turn.sampled.logprobs, turn.sampled.forced)
    return Brought(rl=rl, opd=opd, reward=verdict.reward, confidence=sure)


def confidence(logprobs: Sequence[float], forced: Sequence[bool]) -> float | None:
    """The mean probability of the tokens that were sampled; None where all were forced."""
    sampled = [math.exp(min(value, 0.0)) for value, fixed in zip(logprobs, forced, strict=True) if not fixed]
    return math.fsum(sampled) / len(sampled) if sampled else None


def routed(turn: Brought, *, confident_above: float) -> Brought:
    """The turn with the terms that it learns by."""
    if turn.reward > 0:
        sure = turn.confidence is not None and turn.confidence >= confident_above
        return turn._replace(rl=turn.rl and not sure, opd=False)
    return turn._replace(rl=turn.rl and not turn.opd)
