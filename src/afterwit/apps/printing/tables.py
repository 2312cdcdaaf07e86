"""The tables of turns and versions that commands print."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import TypeVar

from rich.table import Table
from rich.text import Text

from afterwit.apps.printing.unbound import unbound
from afterwit.core.adapters import SHARED
from afterwit.core.errors import SettingError
from afterwit.core.lifecycle import CLASS_OF, Reason, ReasonClass, State
from afterwit.core.message import Message
from afterwit.core.promotion import Event, EventKind, Standing
from afterwit.core.turn import ImportedTurn, Kind
from afterwit.store import Counts, Record, VersionRecord

Member = TypeVar("Member", bound=StrEnum)

ID_CHARS = 12
"""Characters of a turn's id that are listed: the millisecond it began in, and ten random bits."""
WIDE = 100
"""Columns of a terminal from which reasons are listed at length."""

COLOUR = {
    State.OPEN: "cyan",
    State.ANSWERED: "blue",
    State.JUDGED: "yellow",
    State.TRAINED: "green",
    State.SKIPPED: "bright_black",
}


def choice(kind: type[Member], value: str | None, flag: str) -> Member | None:
    """The member that `value` names; None if it is None."""
    return None if value is None else named(kind, value, flag)


def named(kind: type[Member], value: str, flag: str) -> Member:
    """The member that `value` names in any case; SettingError that lists all members."""
    for member in kind:
        if member.value.lower() == value.lower():
            return member
    raise SettingError(f"{flag} {value}: it must be one of {', '.join(kind)}")


def turn_table(records: Sequence[Record], *, width: int) -> Table:
    """One row a turn in `width` columns: time and reward are always whole, state and response may be cut."""
    table = Table(box=None, pad_edge=False, expand=True)
    for name in ("turn", "when", "reward", "hints"):
        table.add_column(name, no_wrap=True)
    table.add_column("state", no_wrap=True, max_width=26 if width < WIDE else 48, overflow="ellipsis")
    table.add_column("response", no_wrap=True, ratio=1, overflow="ellipsis")
    ids = short_ids([record.turn.id for record in records])
    for record, short in zip(records, ids, strict=True):
        verdict = record.verdict
        table.add_row(
            short,
            short_moment(record.turn.created),
            "" if verdict is None else f"{verdict.reward:+d}" if verdict.reward else "0",
            "" if verdict is None else str(len(verdict.hints)),
            _state(record),
            Text(one_line(record.turn.message, width)),
        )
    return table


def unbound_lines(records: Sequence[Record]) -> list[Text]:
    """A line for each reason why turns have no place behind another, with these turns."""
    short = dict(zip(ids := [record.turn.id for record in records], short_ids(ids), strict=True))
    return [
        Text(f"{', '.join(short[turn] for turn in turns)}: {why}", style="dim")
        for why, turns in unbound(records).items()
    ]


def short_ids(ids: Sequence[str]) -> list[str]:
    """The beginning of each id; an id whole if another one listed begins alike."""
    beginnings = Counter(each[:ID_CHARS] for each in ids)
    return [each if beginnings[each[:ID_CHARS]] > 1 else each[:ID_CHARS] for each in ids]


def _state(record: Record) -> Text:
    words = record.state.value
    if isinstance(record.turn, ImportedTurn):
        words = f"imported {words}"
    if record.turn.kind is not Kind.MAIN:
        words = f"{record.turn.kind.value} {words}"
    if record.reason is not None:
        words += f" ({record.reason.value})"
    elif record.trained_in:
        words += f" in {', '.join(map(str, record.trained_in))}"
    elif record.error is not None:
        words += f", waiting: {record.error}"
    return Text(words, style="red" if _failed(record.reason) else COLOUR[record.state])


def _failed(reason: Reason | None) -> bool:
    return reason is not None and CLASS_OF[reason] is ReasonClass.FAILED


def one_line(message: Message, width: int) -> str:
    """A message in one line: its calls, else its text."""
    words = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    words.append(message.content or "")
    text = " ".join(" ".join(words).split())
    return text if len(text) <= width else text[: width - 1] + "…"


def moment(seconds: float | None) -> str:
    """A time for people, without the date if it is today's; empty for None."""
    return _written(seconds, "%Y-%m-%d %H:%M")


def short_moment(seconds: float | None) -> str:
    """As `moment`, without the year."""
    return _written(seconds, "%m-%d %H:%M")


def _written(seconds: float | None, other_day: str) -> str:
    if seconds is None:
        return ""
    then = time.localtime(seconds)
    return time.strftime("%H:%M:%S" if then[:3] == time.localtime()[:3] else other_day, then)


def counts_line(counts: Counts) -> Text:
    """How many turns are in which state, and why some were skipped."""
    parts = [f"{state.value} {counts.states.get(state, 0)}" for state in State]
    reasons = [f"{reason.value} {number}" for reason, number in sorted(counts.reasons.items())]
    return Text(" · ".join(parts) + (f"   skipped: {', '.join(reasons)}" if reasons else ""), style="dim")


def version_table(
    versions: Sequence[VersionRecord],
    serving: Collection[int],
    confirmed_versions: Collection[int] = (),
    *,
    width: int,
) -> Table:
    """One row a version in `width` columns: numbers and times are always whole, the standing may be cut.

    Adapters are named if there is any beside the shared one.

    Confirmed versions are places that an alarm returns to. A narrow table leaves out since when each serves.
    """
    names = ["version", "how", "made", "learned from", "loss", "standing", "served since"]
    rows = [_version_row(version, serving, confirmed_versions) for version in versions]
    if any(version.adapter != SHARED for version in versions):
        names.insert(1, "adapter")
        for row, version in zip(rows, versions, strict=True):
            row.insert(1, version.adapter if version.number else "")
    table = Table(box=None, pad_edge=False)
    for at, name in enumerate(names[: None if width >= WIDE else -1]):
        whole = max(len(name), *(len(row[at]) for row in rows)) if rows and name != "standing" else None
        table.add_column(name, no_wrap=True, min_width=whole, overflow="ellipsis")
    for row in rows:
        table.add_row(*row[: len(table.columns)])
    return table


def _version_row(
    version: VersionRecord, serving: Collection[int], confirmed: Collection[int]
) -> list[str | Text]:
    loss = version.metrics.get("loss")
    how = version.origin.value
    if version.restores is not None:
        how += f" of {version.restores}"
    elif version.parent not in (None, version.number - 1):
        how += f" of {version.parent}"
    replayed = f" +{version.replayed} again" if version.replayed else ""
    return [
        f"{version.number}{' *' if version.number in serving else ''}",
        how,
        short_moment(version.created),
        f"{version.trained} turns{replayed}" if version.trained or version.replayed else "",
        "" if loss is None else f"{loss:.4f}",
        _standing(version, confirmed),
        short_moment(version.published_at),
    ]


def _standing(version: VersionRecord, confirmed: Collection[int]) -> Text:
    if version.number in confirmed:
        return Text(Standing.CONFIRMED, style="green")
    if version.suite is None:
        return Text("")
    lost = "" if version.suite.worst is None else f", lost some `{version.suite.worst}`"
    return Text(
        version.suite.standing + lost, style="" if version.suite.standing is Standing.CLEAN else "yellow"
    )


def event_lines(events: Sequence[Event]) -> list[Text]:
    """A line for each hold and alarm, the newest last."""
    return [
        Text(f"{short_moment(event.at)} {_whose(event)}{event.kind}: {event.words}", style="yellow")
        for event in events
        if event.kind is not EventKind.CONFIRM
    ]


def _whose(event: Event) -> str:
    return "" if event.adapter == SHARED else f"{event.adapter} "
