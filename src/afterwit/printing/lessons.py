"""The screen of `afterwit lessons`: the rows that the page shows, and the same verdict above them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from afterwit.build import store_of_home
from afterwit.config import load
from afterwit.learning.schedule import with_note
from afterwit.practice.lessons import Progress
from afterwit.practice.table import LessonRow, lessons, none_yet
from afterwit.printing.terminal import Terminal, moment, unlisted, write_json
from afterwit.progress import progress
from afterwit.promotion.watch import requests_asked
from afterwit.text import counted

COLOUR = {
    Progress.PRACTISING: "yellow",
    Progress.LEARNED: "green",
    Progress.SETTLED: "green",
    Progress.DROPPED: "bright_black",
    Progress.REPLACED: "bright_black",
    Progress.WAITING: "cyan",
}


def print_lessons(home: Path | None, *, limit: int, json: bool) -> None:
    """`afterwit lessons`: the last given first, at most `limit`; 0: all."""
    learner = load(home=home).learner
    with store_of_home(home) as store:
        asked = requests_asked(store)
        every = sorted(store.lessons(), key=lambda each: -each.newest)
        found = lessons(
            store, with_note(learner, store.note("learn")).teaching, asked, of=every[: limit or None]
        )
        why = "" if found else none_yet(store)
    if json:
        for row in found:
            write_json(row)
        return
    console = Terminal()
    console.print(Text(progress(asked).sentence, style="bold"))
    if not found:
        console.print(why)
    for row in found:
        for line, style in _lines(row):
            console.say(line, style=style)
    if len(found) < len(every):
        console.say(unlisted(len(found), "lesson", len(every)), style="dim")


def _lines(row: LessonRow) -> Iterator[tuple[str, str]]:
    first, last = row.corrections[0], row.corrections[-1]
    again = f", {counted(row.said - 1, 'time')} since, last {moment(last.given)}" if row.said > 1 else ""
    lesson = "\n     ".join(line for line in row.words.splitlines() if line.strip())
    yield f"\n{row.number:>3}  {lesson}", "bold"
    yield f"     first given by {first.scope}, {moment(first.given)}{again}", ""
    yield f"     {row.how_far}", COLOUR[row.progress]
    yield f"     {row.how_often}{f'; {row.how_wide}' * bool(row.how_wide)}", ""
    after = f"version {row.after_version}"
    for name, words in (("asked", row.request), ("before", row.before), (after, row.after)):
        if words is not None:
            yield f"     {name:<11} {words}", "dim"
