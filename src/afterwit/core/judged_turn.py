"""A judged turn in two forms: as the learner trains on it, and as it waits for its update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from afterwit.core.adapters import SHARED
from afterwit.core.teaching import Flag
from afterwit.core.turn import Turn
from afterwit.core.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTurn:
    """One turn with its verdict. `rl` and `opd`: the terms of the loss that it carries."""

    turn: Turn
    verdict: Verdict
    rl: bool
    opd: bool
    group_rewards: tuple[int, ...] = ()
    """The rewards of all judged turns with this prompt, zeros included; (): they were not looked up."""

    def __post_init__(self) -> None:
        if not (self.rl or self.opd):
            raise ValueError(f"turn {self.turn.id} carries no term: it is skipped, not sampled")
        if self.opd and not self.verdict.hints:
            raise ValueError(f"turn {self.turn.id} has an OPD term but no hint")
        if self.rl and self.verdict.reward == 0:
            raise ValueError(f"turn {self.turn.id} has an RL term but reward 0")


class Waiting(NamedTuple):
    """A judged turn that waits for an update: the facts by which the next batch is chosen."""

    seq: int
    """The order of arrival, which names the turn in the store."""
    turn: str
    """Its id."""
    session: str
    since: float
    """When it was judged."""
    oldest_version: int
    """The version that sampled its oldest token."""
    ended: bool
    """Whether its session has ended, as far as the store can know."""
    source: str = ""
    """Whose it is: the turn's scope."""
    flags: tuple[Flag, ...] = ()
    accepted: bool = False
    """Whether a person accepted its verdict."""
    rewarded: bool = True
    """Whether it carries a reward term."""
    adapter: str = SHARED
    """The adapter that sampled it and learns from it."""
