"""Episodes: from a person's request to their reaction. How each ended, and which turns it approved.

A session may go on for days, so what is counted is its episodes. A turn closes an episode if a person's words
or feedback follow it; the episode holds the turns before it, back to the one that closed the episode before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from afterwit.adapters import SHARED
from afterwit.judging.questions import reactions
from afterwit.promotion.suite import stratum_of
from afterwit.turn import Finish, RecordedTurn, Turn
from afterwit.verdict import NextState, Source, Verdict


class BadEnd(StrEnum):
    """Why an episode counts as bad, the gravest first. A complaint with a hint is none: it teaches. Nor is
    one on which votes differ: a judge that is wrong now and then must not raise alarms."""

    DISPLEASED = "displeased"
    """A person was displeased, with nothing to learn: a reward of -1 and no hint."""
    NO_END = "no_end"
    """The agent's last turn was a tool call, and nothing followed."""
    REPEATED_CALL = "repeated_call"
    """A tool call repeated an earlier one of the conversation, word for word, and was not paid for it."""
    CUT_AT_LENGTH = "cut_at_length"
    """A response did not come to its end, though the client had asked for no shorter one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A turn of an episode with its verdict; None: it has none."""

    turn: RecordedTurn
    verdict: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """How an episode ended."""

    turn: str
    """The turn that closed it, or the last one."""
    session: str
    source: str
    """Who spoke: the turn's source."""
    version: int
    """The version that sampled most of its tokens; 0 for turns recorded elsewhere."""
    bad: BadEnd | None
    complaint: bool
    """Whether the person was displeased, with a hint or without."""
    kind: str
    """The first tool that was called, with its flags, or text."""
    approved: tuple[str, ...] = ()
    """Turns that a new version should still take: all of an approved episode; of one that ended in a
    complaint with a hint, the steps before it that were good. Only what no vote denied."""
    adapter: str = SHARED
    """The adapter that served its last turn."""
    at: float = 0.0
    """The time at which the store recorded it, in seconds since the epoch."""


def closes(next_state: NextState | None) -> bool:
    """Whether a person's words or feedback follow, so that an episode ends."""
    if next_state is None:
        return False
    if next_state.feedback is not None:
        return True
    return any(message.role == "user" for message in reactions(next_state.messages))


def episode(steps: Sequence[Step]) -> Episode:
    """The episode of these turns, oldest first; the last one closed it."""
    last = steps[-1]
    bad = _bad_end(steps)
    return Episode(
        turn=last.turn.id,
        session=last.turn.session,
        source=last.turn.source,
        version=_version(step.turn for step in steps),
        bad=bad,
        complaint=last.verdict is not None and last.verdict.reward == -1,
        kind=_kind(steps),
        approved=() if bad else tuple(step.turn.id for step in _approved(steps)),
        adapter=_adapter(last.turn),
    )


def without_end(turn: RecordedTurn) -> Episode:
    """The episode of an agent that called a tool and never came back."""
    return Episode(
        turn=turn.id,
        session=turn.session,
        source=turn.source,
        version=_version([turn]),
        bad=BadEnd.NO_END,
        complaint=False,
        kind=stratum_of(turn.message),
        approved=(),
        adapter=_adapter(turn),
    )


def _kind(steps: Sequence[Step]) -> str:
    called = (step.turn.message for step in steps if step.turn.message.tool_calls)
    return stratum_of(next(called, steps[-1].turn.message))


def _version(turns: Iterable[RecordedTurn]) -> int:
    """Of two that sampled as much, the newer one."""
    tokens = Counter(each for turn in turns if isinstance(turn, Turn) for each in turn.sampled.versions)
    return max(tokens, key=lambda version: (tokens[version], version), default=0)


def _adapter(turn: RecordedTurn) -> str:
    return turn.adapter if isinstance(turn, Turn) else SHARED


def _bad_end(steps: Sequence[Step]) -> BadEnd | None:
    verdict = steps[-1].verdict
    found = {
        BadEnd.DISPLEASED: verdict is not None
        and verdict.reward == -1
        and verdict.undivided
        and not verdict.hints,
        BadEnd.REPEATED_CALL: any(
            step.verdict is not None and step.verdict.source is Source.REPEAT for step in steps
        ),
        BadEnd.CUT_AT_LENGTH: any(_cut(step.turn) for step in steps),
    }
    return next((reason for reason, holds in found.items() if holds), None)


def _cut(turn: RecordedTurn) -> bool:
    """Whether something else than the client's own wish ended the response."""
    if turn.finish is not Finish.LENGTH:
        return False
    if not isinstance(turn, Turn):
        return True
    return not turn.sampling.limit_asked or len(turn.sampled.ids) < turn.sampling.max_tokens


def _approved(steps: Sequence[Step]) -> Sequence[Step]:
    *before, last = steps
    if last.verdict is None or last.verdict.reward == 0 or not last.verdict.undivided:
        return ()
    good = [step for step in before if _surely_good(step.verdict)]
    if last.verdict.reward == -1:
        return good
    kept = [step for step in before if step.verdict is None or step.verdict.reward >= 0]
    return [*kept, last]


def _surely_good(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.reward == 1 and verdict.undivided
