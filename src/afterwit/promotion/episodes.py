"""Episodes: from a person's request to their reaction. How each ended, and which turns it approved.

A session may go on for days, so what is counted is its episodes. A turn closes an episode if a person's words
or feedback follow it; the episode holds the turns before it, back to the one that closed the episode before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from afterwit.judging.questions import reactions
from afterwit.progress import PersonRequest
from afterwit.promotion.suite import stratum_of
from afterwit.turn import SHARED, Finish, RecordedTurn, Turn
from afterwit.verdict import NextState, Question, Source, Verdict


class BadEnd(StrEnum):
    """Why an episode counts as bad, the gravest first. A complaint with a hint is none: it teaches. Nor is
    one on which votes differ: a judge that is wrong now and then must not raise alarms."""

    DISPLEASED = "displeased"
    """A person was displeased, with nothing to learn: a reward of -1, and the judge found no hint."""
    UNASKED = "unasked"
    """A person was displeased, and no judge was asked for a hint."""
    NO_END = "no_end"
    """The agent's last turn was a tool call, and nothing followed."""
    REPEATED_CALL = "repeated_call"
    """A tool call repeated an earlier one of the conversation, word for word, and was not paid for it."""
    CUT_AT_LENGTH = "cut_at_length"
    """A response did not come to its end, though the client had asked for no shorter one."""


class Step(NamedTuple):
    """A turn of an episode with its verdict; None: it has none."""

    turn: RecordedTurn
    verdict: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode(PersonRequest):
    """How an episode ended. Its kind is the first tool that was called, with its flags, or text."""

    turn: str
    """The turn that closed it, or the last one."""
    version: int
    """The version that sampled most of its tokens; 0 for turns recorded elsewhere."""
    bad: BadEnd | None
    approved: tuple[str, ...] = ()
    """Turns that a new version should still take: all of an approved episode; of one that ended in a
    complaint with a hint, the steps before it that were good. Only what no vote denied."""
    adapter: str = SHARED
    at: float = 0.0
    """The time at which the store recorded it, in seconds since the epoch."""

    @property
    def unasked(self) -> bool:
        """Whether it is bad as a complaint for which no hint was asked."""
        return self.bad is BadEnd.UNASKED


def closes(next_state: NextState | None) -> bool:
    """Whether a person's words or feedback follow, so that an episode ends."""
    if next_state is None:
        return False
    if next_state.feedback is not None:
        return True
    return any(message.role == "user" for message in reactions(next_state.messages))


def episode(steps: Sequence[Step], *, ended: bool = True) -> Episode:
    """The episode of these turns, oldest first; the last one closed it.

    `ended`: False for an agent that called a tool and never came back.
    """
    turns, last = [step.turn for step in steps], steps[-1].turn
    bad = _bad_end(steps) if ended else BadEnd.NO_END
    called = next((turn for turn in turns if turn.message.tool_calls), last)
    tokens = Counter(each for turn in turns if isinstance(turn, Turn) for each in turn.sampled.versions)
    return Episode(
        turn=last.id,
        session=last.session,
        source=last.source,
        # of two that sampled as much, the newer one
        version=max(tokens, key=lambda version: (tokens[version], version), default=0),
        bad=bad,
        complaint=steps[-1].verdict is not None and steps[-1].verdict.reward == -1,
        kind=stratum_of(called.message),
        approved=() if bad else _approved(steps),
        adapter=last.adapter if isinstance(last, Turn) else SHARED,
    )


def _bad_end(steps: Sequence[Step]) -> BadEnd | None:
    last = steps[-1].verdict
    if last is not None and last.reward == -1 and last.undivided and not last.hints:
        asked = any(vote.question is Question.HINT for vote in last.votes)
        return BadEnd.DISPLEASED if asked else BadEnd.UNASKED
    if any(step.verdict is not None and step.verdict.source is Source.REPEAT for step in steps):
        return BadEnd.REPEATED_CALL
    for step in steps:
        turn = step.turn
        if turn.finish is Finish.LENGTH and not (
            isinstance(turn, Turn)  # else the client's own wish may have ended it
            and turn.sampling.limit_asked
            and len(turn.sampled.ids) >= turn.sampling.max_tokens
        ):
            return BadEnd.CUT_AT_LENGTH
    return None


def _approved(steps: Sequence[Step]) -> tuple[str, ...]:
    *before, last = steps
    if last.verdict is None or last.verdict.reward == 0 or not last.verdict.undivided:
        return ()
    if last.verdict.reward == -1:
        surely = (step for step in before if step.verdict is not None and step.verdict.undivided)
        return tuple(step.turn.id for step in surely if step.verdict and step.verdict.reward == 1)
    kept = (step for step in before if step.verdict is None or step.verdict.reward >= 0)
    return (*(step.turn.id for step in kept), last.turn.id)
