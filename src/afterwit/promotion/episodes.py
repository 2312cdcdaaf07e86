"""Episodes: from a person's request to their reaction. How each ended, and the consequences. Pure.

A session may go on for days, so what is counted is its episodes. A turn closes an episode if a person's words
or feedback follow it; the episode holds the turns before it, back to the one that closed the episode before.

Below are conclusions from many episodes about the version that served them, and the decisions on versions,
which are kept as events. The suite decides on a hold. All events move the step size of the next updates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple

from afterwit.judging.questions import reactions
from afterwit.lifecycle import Worded
from afterwit.progress import PersonRequest
from afterwit.promotion.suite import ongoing_evidence, stratum_of
from afterwit.turn import SHARED, Finish, RecordedTurn, Turn
from afterwit.verdict import NextState, Question, Source, Verdict
from afterwit.version import Origin, Version


class BadEnd(Worded):
    """Why an episode counts as bad, the gravest first, with `words`: how it ended.

    A complaint with a hint is no bad end: it teaches. Nor is one on which votes differ: a judge that is wrong
    now and then must not raise alarms.
    """

    DISPLEASED = "displeased", "in a complaint without a hint"
    """A person was displeased, with nothing to learn: a reward of -1, and the judge found no hint."""
    UNASKED = "unasked", "in a complaint"
    """A person was displeased, and no judge was asked for a hint."""
    NO_END = "no_end", "never"
    """The agent's last turn was a tool call, and nothing followed."""
    REPEATED_CALL = "repeated_call", "after repeated calls"
    """A tool call repeated an earlier one of the conversation, word for word, and was not paid for it."""
    CUT_AT_LENGTH = "cut_at_length", "with a response cut at its length"
    """A response did not come to its end, though the client had asked for no shorter one."""


class RatedTurn(NamedTuple):
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


def episode(steps: Sequence[RatedTurn], *, ended: bool = True) -> Episode:
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


def _bad_end(steps: Sequence[RatedTurn]) -> BadEnd | None:
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


def _approved(steps: Sequence[RatedTurn]) -> tuple[str, ...]:
    *before, last = steps
    if last.verdict is None or last.verdict.reward == 0 or not last.verdict.undivided:
        return ()
    if last.verdict.reward == -1:
        surely = (step for step in before if step.verdict is not None and step.verdict.undivided)
        return tuple(step.turn.id for step in surely if step.verdict and step.verdict.reward == 1)
    kept = (step for step in before if step.verdict is None or step.verdict.reward >= 0)
    return (*(step.turn.id for step in kept), last.turn.id)


PRIOR = 3
"""Imagined requests, of which the set share ended badly, added to those before: few requests show little. If
all of them ended badly, the share is the rule of three's: 95 % sure that no more did."""
MOST = 2.0
"""How many times the setting may end badly because as many did before, unless the original model did worse.
Else a ruin that was confirmed by chance would be the measure of the next."""
NEARLY_ALL = 0.95
"""The share that counts as all: no evidence would exceed it."""
NEWEST = 24
"""The newest episodes before a confirmation, of which no larger share than may end badly did."""


def may_end_badly(
    setting: float, *, before: tuple[int, int], base: tuple[int, int], unasked: bool = False
) -> float:
    """The share of episodes that may end badly: the setting, or the share before if that is more, because
    people who were often displeased before do not count against a version.

    `before`: how many of how many episodes ended badly under the version that an alarm would return to and
    those that it was learned from; `base`: under the original model. `unasked`: complaints count though no
    hint was asked for. Learning is for them, so the setting does not fit: only more than before are evidence.
    """
    imagined = PRIOR if unasked else PRIOR * setting

    def share(counted: tuple[int, int]) -> float:
        return (counted[0] + imagined) / (counted[1] + PRIOR)

    return max(setting, min(share(before), max(MOST * setting, share(base)), NEARLY_ALL))


def watch_evidence(ended: Iterable[Episode], *, bound: float) -> float:
    """The evidence of these episodes, oldest first, against "at most this share ends badly"."""
    return [0.0, *ongoing_evidence((each.bad is not None for each in ended), bound=bound)][-1]


def confirming(ended: Sequence[Episode], *, after: int, bound: float) -> Episode | None:
    """The first of `after` good episodes in a row, if the newest one completes them; else None.

    A row also comes by chance, so the newest episodes together must not have ended worse than `bound`.
    """
    row, newest = good_row(ended), ended[-NEWEST:]
    if not row or row[-1] is not ended[-1] or len(row) % after:
        return None
    share = sum(each.bad is not None for each in newest) / len(newest)
    return row[-after] if share <= bound else None


def good_row(ended: Sequence[Episode]) -> list[Episode]:
    """The episodes that ended well since the last bad one, oldest first. Complaints end no row unless a hint
    was asked for in vain."""
    since = list(takewhile(lambda each: each.bad is None or each.unasked, reversed(ended)))
    return [each for each in reversed(since) if not each.complaint]


SLOWER, LEAST_SHARE, RECOVERY = 3.0, 1 / 9, 1.25
"""A hold or an alarm divides the step size, down to the least share of the setting; a confirmation multiplies
it. It recovers slowly, or the rate that ruined a version would be back after six requests."""
PULL = 0.15
"""The weight of the reference KL is at least this, times the share of the step size that was taken away."""


class EventKind(StrEnum):
    """The kinds of decisions."""

    HOLD = "hold"
    """An update lost too much of what people approved, and became no version."""
    ALARM = "alarm"
    """Too many episodes ended badly: what was learned since the last confirmed version is taken back."""
    CONFIRM = "confirm"
    """Episodes in a row ended well: later alarms fall back to this version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One decision."""

    kind: EventKind
    at: float
    """Seconds since the epoch."""
    version: int
    """Hold: where the update began. Alarm: the newest one. Confirm: the one that is confirmed."""
    evidence: float
    words: str
    adapter: str = SHARED


def back_off(events: Sequence[Event]) -> tuple[float, float]:
    """The share of the step size that these events, oldest first, leave, and the least weight of the
    reference KL."""
    share = 1.0
    for event in events:
        if event.kind is EventKind.CONFIRM:
            share = min(1.0, share * RECOVERY)
        else:
            share = max(LEAST_SHARE, share / SLOWER)
    return share, PULL * (1 - share)


def confirmed(events: Sequence[Event]) -> int:
    """The last confirmed version, else the base."""
    return next((event.version for event in reversed(events) if event.kind is EventKind.CONFIRM), 0)


def alarms_in_a_row(events: Sequence[Event]) -> int:
    """Alarms since the last confirmation."""
    count = 0
    for event in reversed(events):
        if event.kind is EventKind.CONFIRM:
            break
        count += event.kind is EventKind.ALARM
    return count


def due(
    events: Sequence[Event], versions: Sequence[Version], has_weights: Callable[[int], bool]
) -> tuple[int, Event] | None:
    """The version to return to now, and the event that requires it; None if there is nothing to take back.

    An alarm returns to the version that was confirmed before it. A hold returns to the newest one since then
    that lost nothing, if the newest of all has itself lost something that was approved; else the next update
    begins there again, and a second hold in a row after such a return goes to the confirmed version. If the
    weights of a version are gone, the one before it takes its place, and at last the base.
    """
    decided = [event for event in events if event.kind is not EventKind.CONFIRM]
    if not decided or not versions:
        return None
    event, newest = decided[-1], versions[-1]
    before = (each for each in reversed(events[: events.index(event)]) if each.kind is EventKind.CONFIRM)
    target = next((each.version for each in before if has_weights(each.version)), 0)
    if event.kind is EventKind.ALARM:
        if any(each.origin is Origin.ROLLBACK for each in versions if each.number > event.version):
            return None
    elif event.version != newest.number:
        return None
    elif newest.suite is not None and newest.suite.lost_turns:
        whole = (each.number for each in that_lost_nothing(versions) if has_weights(each.number))
        target = max(target, next(whole, 0))
    elif newest.origin is not Origin.ROLLBACK or not _held_at(newest.parent, decided[:-1]):
        return None
    return None if target in (newest.number, newest.restores) else (target, event)


def _held_at(version: int | None, decided: Sequence[Event]) -> bool:
    return bool(decided) and (decided[-1].kind, decided[-1].version) == (EventKind.HOLD, version)


def that_lost_nothing(versions: Sequence[Version]) -> Iterator[Version]:
    """Newest first, those that stand, were tested in each kind in which the newest lost something, and lost
    nothing."""
    gone = {number for each in versions for number in each.reverts}
    lost = {} if (newest := versions[-1].suite) is None else newest.lost
    kinds = {name for name, (count, _) in lost.items() if count}
    for each in reversed(versions):
        suite = each.suite
        if suite and each.number not in gone and not suite.lost_turns and kinds <= suite.lost.keys():
            yield each
