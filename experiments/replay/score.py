"""The confusion table: what the binding made of each ask, against the truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from afterwit.binding.request import plain_text
from afterwit.judging.questions import reactions
from afterwit.lifecycle import Reason, State
from afterwit.store import Record
from afterwit.turn import Kind, Message
from experiments.replay.hosts.port import Served
from experiments.replay.schedule import Played

Texts = tuple[tuple[str, str], ...]
"""A next state: role and text of each message."""


@dataclass(slots=True)
class Score:
    """Counts. Turns that were retried, edited away or left are counted only as those that may not train."""

    sessions: int = 0
    merged: int = 0
    """Found sessions that hold the main lines of several."""
    split: int = 0
    """Sessions that were found as several."""
    main: int = 0
    right: int = 0
    """Main-line turns with the right parent and next state, which are not taken for side turns."""
    parent_wrong: int = 0
    next_missing: int = 0
    next_wrong: int = 0
    main_as_side: int = 0
    ambiguous: int = 0
    """Main-line turns that are served and not trained because two parents are equally likely."""
    side: int = 0
    known: int = 0
    side_unknown: int = 0
    """Side turns that do not train because a sibling contends."""
    side_trains: int = 0
    """Side turns that have a next state and would train."""

    def __add__(self, other: Score) -> Score:
        return Score(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Score)))


@dataclass(frozen=True, slots=True)
class Mistake:
    """One turn that is not right, for those who look for the reason."""

    play: int
    client: str
    ask: str
    what: str


def score(plays: Sequence[Played], records: Mapping[str, Record]) -> tuple[dict[str, Score], list[Mistake]]:
    """The counts of each kind of client, and every mistake."""
    scores: dict[str, Score] = defaultdict(Score)
    mistakes: list[Mistake] = []
    found: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for index, played in enumerate(plays):
        counted = scores[played.name]
        for served, what in _judged(played.served, records, counted):
            mistakes.append(Mistake(index, played.name, served.ask.name, what))
        for session, homes in _homes(played.served, records).items():
            counted.sessions += 1
            counted.split += len(homes) > 1
            if len(homes) > 1:
                mistakes.append(Mistake(index, played.name, session, f"split into {len(homes)}"))
            for home in homes:
                found[home].add((index, session))
    for held in found.values():
        if len(held) > 1:
            for index, session in held:
                scores[plays[index].name].merged += 1
                mistakes.append(Mistake(index, plays[index].name, session, "merged"))
    return dict(scores), mistakes


def _homes(served: Iterable[Served], records: Mapping[str, Record]) -> dict[str, set[str]]:
    """The found sessions of each true one. Turns that are known to be ambiguous stand by themselves."""
    homes: dict[str, set[str]] = defaultdict(set)
    astray: set[str] = set()
    for one in served:
        record = records[one.turn]
        if record.reason is Reason.AMBIGUOUS_PARENT:
            astray.add(record.turn.session)
        if not one.ask.side and one.ask.arrives and record.turn.session not in astray:
            homes[one.ask.session].add(record.turn.session)
    return homes


def _judged(
    served: Sequence[Served], records: Mapping[str, Record], counted: Score
) -> Iterator[tuple[Served, str]]:
    """Count the asks of one play; each mistake."""
    turns = {one.ask.name: one.turn for one in served}
    left = {one.ask.again for one in served if one.ask.again is not None}
    truth = _next_states(served)
    for one in served:
        ask, record = one.ask, records[one.turn]
        if ask.side:
            wrong = _side(record, counted)
        elif not ask.arrives or ask.name in left:
            wrong = "trains though it was left" if _trains(record) and ask.name not in truth else None
            counted.side_trains += wrong is not None
        else:
            parent = None if ask.parent is None else turns[ask.parent]
            wrong = _main(record, parent, truth.get(ask.name, ((),)), counted)
        if wrong is not None:
            yield one, wrong


def _side(record: Record, counted: Score) -> str | None:
    counted.side += 1
    kind = record.turn.kind
    counted.known += kind is Kind.SIDE
    counted.side_unknown += kind is Kind.UNKNOWN
    if _trains(record):
        counted.side_trains += 1
        return "side turn trains"
    return None if kind is Kind.SIDE else f"side turn is {kind}"


def _main(record: Record, parent: str | None, truth: Sequence[Texts], counted: Score) -> str | None:
    counted.main += 1
    if record.reason is Reason.AMBIGUOUS_PARENT:
        counted.ambiguous += 1
    said = _texts(() if record.next_state is None else record.next_state.messages)
    if record.turn.kind is Kind.SIDE:
        counted.main_as_side += 1
        return "main turn is side"
    if record.turn.parent != parent:
        counted.parent_wrong += 1
        return f"parent {record.turn.parent}, not {parent} ({record.reason})"
    if said not in truth:
        counted.next_wrong += bool(said)
        counted.next_missing += not said
        return f"next state {said}, not {truth}"
    if said and record.turn.kind is not Kind.MAIN:
        counted.next_missing += 1
        return f"is {record.turn.kind}, so its next state does not count"
    counted.right += 1
    return None


def _trains(record: Record) -> bool:
    return record.turn.kind is Kind.MAIN and record.state is State.ANSWERED


def _next_states(served: Sequence[Served]) -> dict[str, list[Texts]]:
    """The next states that are right for each ask. An edit leaves two: the one before it, and its own."""
    truth: dict[str, list[Texts]] = {}
    for one in served:
        for name, messages in one.ask.says.items():
            said = _texts(messages)
            truth[name] = [*truth.get(name, []), said] if one.ask.again else [said]
    return truth


def _texts(messages: Sequence[Message]) -> Texts:
    """As the judge reads them, without the state that clients report in tools' results, which stays there."""
    return tuple((each.role, plain_text(each)) for each in reactions(messages))
