"""The table of turns that commands print, and lines about many of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from afterwit.lifecycle import CLASS_OF, Reason, ReasonClass, State
from afterwit.message import Message
from afterwit.printing.terminal import WIDE, short_moment
from afterwit.printing.unbound import unbound
from afterwit.store import Counts, Record
from afterwit.teaching.review import WORDS
from afterwit.turn import ImportedTurn, Kind

ID_CHARS = 12
"""Characters of a turn's id that are listed: the millisecond it began in, and ten random bits."""

COLOUR = {
    State.OPEN: "cyan",
    State.ANSWERED: "blue",
    State.JUDGED: "yellow",
    State.TRAINED: "green",
    State.SKIPPED: "bright_black",
}


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


def counts_line(counts: Counts) -> Text:
    """How many turns are in which state, and why some were skipped."""
    parts = [f"{state.value} {counts.states.get(state, 0)}" for state in State]
    reasons = [f"{reason.value} {number}" for reason, number in sorted(counts.reasons.items())]
    return Text(" · ".join(parts) + (f"   skipped: {', '.join(reasons)}" if reasons else ""), style="dim")


WIDTH = 200
"""Characters of a response that are shown."""


def described(record: Record) -> Iterator[str]:
    """A turn in a few lines: what would be learned from it, and why that is doubtful."""
    verdict = record.verdict
    reward = 0 if verdict is None else verdict.reward
    yield f"{record.turn.id}  reward {reward:+d}  from {record.turn.scope}"
    yield f"  response  {one_line(record.turn.message, WIDTH)}"
    for hint in () if verdict is None else verdict.hints:
        yield f"  hint      {' '.join(hint.split())}"
    for flag in record.flags:
        yield f"  why       {WORDS[flag]}"


def as_json(record: Record) -> dict[str, Any]:
    """The same for programs."""
    verdict = record.verdict
    return {
        "turn": record.turn.id,
        "session": record.turn.session,
        "source": record.turn.source,
        "reward": None if verdict is None else verdict.reward,
        "hints": [] if verdict is None else list(verdict.hints),
        "flags": [flag.value for flag in record.flags],
        "accepted": record.accepted,
    }
