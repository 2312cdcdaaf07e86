"""The watch over the version that serves: sessions that end badly, counted until it is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from afterwit.core.promotion.evidence import ongoing_evidence


class BadEnd(StrEnum):
    """Why a session counts as bad, the gravest first. A complaint with a hint is none: it is learned from."""

    DISPLEASED = "displeased"
    """A person ended it displeased, with nothing to learn: a reward of -1 and no hint."""
    REPEATED_CALL = "repeated_call"
    """A tool call repeated an earlier one of the session, word for word."""
    CUT_AT_LENGTH = "cut_at_length"
    """An answer did not come to its end."""
    NOBODY = "nobody"
    """No person ended it: its last turn never got a reply or feedback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    """How a session ended, as the store knows it."""

    reward: int | None
    """The reward of the last turn that a person answered; None: nobody answered the last one."""
    hinted: bool
    """Whether that turn got a hint."""
    repeated_call: bool
    cut_at_length: bool


def bad_end(end: SessionEnd) -> BadEnd | None:
    """Why a session counts as bad; None if it does not."""
    found = {
        BadEnd.DISPLEASED: end.reward == -1 and not end.hinted,
        BadEnd.REPEATED_CALL: end.repeated_call,
        BadEnd.CUT_AT_LENGTH: end.cut_at_length,
        BadEnd.NOBODY: end.reward is None,
    }
    return next((reason for reason, holds in found.items() if holds), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The rule: how many bad sessions are an alarm, and how many good ones confirm a version."""

    bound: float = 0.15
    """The share of sessions that may end badly."""
    alarm_at: float = 20.0
    """Evidence from which the version is taken back. At half of `bound`, sessions until a false alarm are
    above 1,000 on average; at twice of it an alarm comes after about 25."""
    confirm_after: int = 6
    """Sessions in a row that must not end badly before a version is confirmed."""

    def evidence(self, bad: Sequence[bool]) -> float:
        """The evidence against the version from the sessions since it began to serve, oldest first."""
        return [0.0, *ongoing_evidence(bad, bound=self.bound)][-1]

    def alarms(self, bad: Sequence[bool]) -> bool:
        """Whether these sessions are evidence enough to take the version back."""
        return self.evidence(bad) >= self.alarm_at

    def confirms(self, bad: Sequence[bool]) -> bool:
        """Whether the newest sessions confirm the version."""
        newest = bad[-self.confirm_after :]
        return len(newest) == self.confirm_after and not any(newest)
