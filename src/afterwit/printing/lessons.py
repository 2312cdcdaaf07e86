"""The screen of `afterwit lessons`."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from afterwit.build import store_of_home
from afterwit.config import load
from afterwit.learning.schedule import with_note
from afterwit.practice.lessons import Progress
from afterwit.practice.table import LessonRow, lessons
from afterwit.printing.terminal import Terminal, moment, write_json
from afterwit.text import counted

COLOUR = {
    Progress.PRACTISING: "yellow",
    Progress.LEARNED: "green",
    Progress.SETTLED: "green",
    Progress.DROPPED: "bright_black",
    Progress.WAITING: "cyan",
}
NONE_YET = "no lesson yet: correct an answer in words, and it appears here"


def print_lessons(home: Path, *, json: bool) -> None:
    """`afterwit lessons`: those said last first."""
    learner = load(home=home).learner
    with store_of_home(home) as store:
        found = lessons(store, with_note(learner, store.note("learn")).teaching)
    if json:
        for row in found:
            write_json(row)
        return
    console = Terminal()
    if not found:
        console.print(NONE_YET)
        return
    console.print(_table(found))
    newest = found[0]
    for name, words in (("asked", newest.request), ("before", newest.before), ("practised", newest.after)):
        if words is not None:
            console.say(f"{name:<10} {words}", style="dim")


def _table(found: list[LessonRow]) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    for name in ("no.", "said", "last", "state"):
        table.add_column(name, no_wrap=True)
    table.add_column("lesson", ratio=1)
    for row in found:
        times = f"{row.said}×" + (f", {row.said_since_learned} since learned" * bool(row.said_since_learned))
        words = Text(row.words)
        words.append(f"  {_why(row)}", style="dim")
        state = Text(row.progress.value, style=COLOUR[row.progress])
        table.add_row(str(row.number), times, moment(row.last, year=False), state, words)
    return table


def _why(row: LessonRow) -> str:
    """How far it is, in brackets."""
    parts = [f"from {row.source}"] if row.source else []
    if row.answers:
        parts.append(counted(row.answers, "answer"))
    if row.gap is not None and row.first_gap is not None:
        parts.append(f"gap {row.first_gap:.2g} to {row.gap:.2g} nats")
    if row.version is not None:
        parts.append(f"version {row.version}")
    if row.general is True:
        parts.append("accepted for other prompts")
    return f"({', '.join(parts)})" if parts else ""
