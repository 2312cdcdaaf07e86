"""What the commands print of turns and versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from rich.table import Table
from rich.text import Text

from afterwit.core.errors import SettingError
from afterwit.core.lifecycle import CLASS_OF, Reason, ReasonClass, State
from afterwit.core.message import Message
from afterwit.store import Counts, Record, VersionRecord

Choice = TypeVar("Choice", bound=StrEnum)
Moment = Callable[[float | None], str]

TURN_COLUMNS = {"turn": 26, "when": 8, "state": 10, "kind": 4, "reward": 2, "hints": 1, "response": 8}
"""What is listed of a turn, and how wide it is at least where there is little room."""

COLOUR = {
    State.OPEN: "cyan",
    State.ANSWERED: "blue",
    State.JUDGED: "yellow",
    State.TRAINED: "green",
    State.SKIPPED: "bright_black",
}


def choice(kind: type[Choice], value: str | None, flag: str) -> Choice | None:
    """The member that `value` names, None where none is named."""
    return None if value is None else named(kind, value, flag)


def named(kind: type[Choice], value: str, flag: str) -> Choice:
    """The member that `value` names in whatever case; SettingError that lists them all."""
    for member in kind:
        if member.value.lower() == value.lower():
            return member
    raise SettingError(f"{flag} {value}: it must be one of {', '.join(kind)}")


def turn_table(records: Sequence[Record], moment: Moment) -> Table:
    """One row a turn."""
    table = Table(box=None, pad_edge=False)
    for name, width in TURN_COLUMNS.items():
        table.add_column(name, no_wrap=True, min_width=width, overflow="ellipsis")
    for record in records:
        verdict = record.verdict
        table.add_row(
            record.turn.id,
            moment(record.turn.created),
            _standing(record),
            record.turn.kind.value,
            "" if verdict is None else f"{verdict.reward:+d}" if verdict.reward else "0",
            "" if verdict is None else str(len(verdict.hints)),
            Text(one_line(record.turn.message, 48)),
        )
    return table


def _standing(record: Record) -> Text:
    words = record.state.value
    if record.reason is not None:
        words += f" ({record.reason.value})"
    elif record.trained_in:
        words += f" in {', '.join(map(str, record.trained_in))}"
    elif record.error is not None:
        words += f", waiting: {record.error[:60]}"
    return Text(words, style="red" if _failed(record.reason) else COLOUR[record.state])


def _failed(reason: Reason | None) -> bool:
    return reason is not None and CLASS_OF[reason] is ReasonClass.FAILED


def one_line(message: Message, width: int) -> str:
    """A message in one line: its calls, else its text."""
    words = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    words.append(message.content or "")
    text = " ".join(" ".join(words).split())
    return text if len(text) <= width else text[: width - 1] + "…"


def counts_line(counts: Counts) -> Text:
    """How many turns are in which state, and why some were skipped."""
    parts = [f"{state.value} {counts.states.get(state, 0)}" for state in State]
    reasons = [f"{reason.value} {number}" for reason, number in sorted(counts.reasons.items())]
    return Text(" · ".join(parts) + (f"   skipped: {', '.join(reasons)}" if reasons else ""), style="dim")


def version_table(versions: Sequence[VersionRecord], serving: int, moment: Moment) -> Table:
    """One row a version."""
    table = Table(
        "version", "from", "how", "made", "learned from", "loss", "served since", box=None, pad_edge=False
    )
    for column in table.columns:
        column.no_wrap = True
    for version in versions:
        loss = version.metrics.get("loss")
        how = version.origin.value
        if version.restores is not None:
            how += f" of {version.restores}"
        replayed = f" (+{version.replayed} again)" if version.replayed else ""
        table.add_row(
            f"{version.number}{' *' if version.number == serving else ''}",
            "" if version.parent is None else str(version.parent),
            how,
            moment(version.created),
            f"{version.trained} turns{replayed}" if version.trained or version.replayed else "",
            "" if loss is None else f"{loss:.4f}",
            moment(version.published_at),
        )
    return table
