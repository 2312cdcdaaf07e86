"""The commands that look: `status`, `turns`, `show`, `ledger`, `progress`, `judges`, `versions`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afterwit.cli.options import Adapter, Config, Home, Json, LearnedIn, choice, store_of, write_json

if TYPE_CHECKING:
    from afterwit.printing.ledger import LedgerEntry
    from afterwit.store import Counts, Record, Store

ALL = "all"
LAST = "last"

EVENTS = 8
"""Holds and alarms that `versions` shows."""


def status(json_: Json = False, home: Home = None) -> None:
    """Show what Afterwit is doing, and when it will learn next."""
    from afterwit.checkpoints.files import held
    from afterwit.config import home_of, load
    from afterwit.home.home import VERSIONS
    from afterwit.learning.schedule import with_note
    from afterwit.printing.status import lines, overview
    from afterwit.printing.terminal import Terminal

    folder = home_of(home)
    settings = load(home=folder).learner
    with store_of(home) as store:
        found = overview(
            store,
            with_note(settings, store.note("learn")),
            serving=held(folder / ".gateway.lock"),
            learning=held(folder / VERSIONS / ".learner.lock"),
            now=time.time(),
        )
    if json_:
        write_json(found)
        return
    console = Terminal()
    for name, words in lines(found):
        console.say(f"{name:<13} {words}", style="bold red" if name.endswith("!") else None)


def turns(
    kind: Annotated[
        str, typer.Option(help="main, side (titles, summaries, measurements), unknown, or all.")
    ] = "main",
    state: Annotated[str | None, typer.Option(help="OPEN, ANSWERED, JUDGED, TRAINED or SKIPPED.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only turns skipped for this reason.")] = None,
    session: Annotated[str | None, typer.Option(help="Only turns of this session.")] = None,
    version: LearnedIn = None,
    limit: Annotated[
        int, typer.Option(min=0, help="How many, the newest first; 0: all, the oldest first.")
    ] = 20,
    json_: Json = False,
    home: Home = None,
) -> None:
    """List turns: the state of each, the reason, and why those without a parent have none."""
    from afterwit.lifecycle import Reason, State
    from afterwit.store import Filter
    from afterwit.turn import Kind

    where = Filter(
        session=session,
        state=choice(State, state, "--state"),
        reason=choice(Reason, reason, "--reason"),
        kind=None if kind == ALL else choice(Kind, kind, "--kind"),
        version=version,
    )
    with store_of(home) as store:
        found = store.turns(where, limit=limit or None, newest_first=limit > 0)
        if json_:
            _print_lines(found)
        else:
            _print_table(list(found), store.counts(), kind)


def _print_lines(records: Iterable[Record]) -> None:
    from afterwit.printing.turns import why_unbound
    from afterwit.store import summary

    for record in records:
        write_json(summary(record) | {"unbound": why_unbound(record)})


def _print_table(records: list[Record], counts: Counts, kind: str) -> None:
    from afterwit.printing.terminal import Terminal
    from afterwit.printing.turns import counts_line, turn_table, unbound_lines

    console = Terminal()
    console.print(turn_table(records, width=console.width))
    for line in unbound_lines(records):
        console.print(line)
    console.print(counts_line(counts))
    if kind != ALL:
        console.print(f"only {kind} turns are listed; --kind all lists every turn", style="dim")


def show(
    turn: Annotated[str, typer.Argument(help="A turn's id or its beginning, a response id, or `last`.")],
    advantages: Annotated[
        bool, typer.Option(help="Compute each token's advantage as an update does (loads the model).")
    ] = True,
    home: Home = None,
    config: Config = None,
) -> None:
    """Show one turn: prompt's end, response, next state, votes, hints, each token's advantage in colour."""
    from afterwit.config import home_of, load
    from afterwit.ids import turn_of_response
    from afterwit.printing.ledger import became
    from afterwit.printing.turns import show_turn

    folder = home_of(home)
    settings = load(home=folder, file=config)
    with store_of(home) as store:
        record = store.turn(last(store) if turn == LAST else store.resolve(turn_of_response(turn)))
        groups = store.group_rewards([record.turn.id]) if settings.objective.reads_groups else {}
        show_turn(
            record,
            settings,
            folder,
            advantages=advantages,
            group_rewards=groups.get(record.turn.id, ()),
            became=became(store, record),
        )


def last(store: Store) -> str:
    """The newest turn of a conversation, whatever its state; without any, the newest turn."""
    from afterwit.errors import SettingError
    from afterwit.store import Filter
    from afterwit.turn import Kind

    for where in (Filter(kind=Kind.MAIN), None):
        found = next(iter(store.turns(where, limit=1, newest_first=True)), None)
        if found is not None:
            return found.turn.id
    raise SettingError("no turn is recorded yet: point an agent at `afterwit serve` first")


def judges(json_: Json = False, home: Home = None) -> None:
    """Show whether the judge can be trusted: its votes, compared with each other and with people's answers.

    Intervals hold the true value in 95 of 100 cases.
    """
    from dataclasses import asdict

    from afterwit.judging.check_stage import report_of
    from afterwit.judging.checks import findings, warnings
    from afterwit.printing.terminal import Terminal

    with store_of(home) as store:
        report = report_of(store)
    if json_:
        write_json(asdict(report) | {"warnings": list(warnings(report))})
        return
    console = Terminal()
    for name, words in findings(report):
        console.say(f"{name:<28} {words}")
    for words in warnings(report):
        console.say(f"! {words}")


def ledger(
    version: Annotated[
        int | None, typer.Argument(help="A weight version. Default: the newest that learned something.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="What became of this conversation, in place of one version.")
    ] = None,
    answers: Annotated[
        bool, typer.Option("--answers", help="Sample greedy answers before and after (loads both versions).")
    ] = False,
    json_: Json = False,
    home: Home = None,
    config: Config = None,
) -> None:
    """Show what a version learned: its turns, what followed them, votes, hints, and the effect of the update.

    With `--session`, all turns of a conversation, and the versions that learned from each.
    """
    from afterwit.errors import SettingError
    from afterwit.printing.ledger import (
        all_fates,
        as_json,
        chosen_version,
        lines,
        of_session,
        of_version,
        version_table,
    )
    from afterwit.printing.terminal import Terminal

    if session is not None and (version is not None or answers):
        raise SettingError("--session shows all versions of a conversation: give it alone")
    console, sampled = Terminal(), dict[str, tuple[str, str]]()
    with store_of(home) as store:
        if session is not None:
            listed = of_session(store, session)
        else:
            chosen = chosen_version(store.versions(), version)
            listed = of_version(store, chosen.number)
            if answers:
                sampled = _answers(chosen.number, listed, home, config)
            if not json_:
                console.print(
                    version_table([chosen], {store.latest_published(chosen.adapter)}, width=console.width)
                )
        fates = all_fates({each.version for one in listed for each in one.learned}, store)
    for entry in listed:
        if json_:
            write_json(as_json(entry, fates, answers=sampled.get(entry.turn)))
        else:
            for text in lines(entry, fates, answers=sampled.get(entry.turn)):
                console.print(text)


def _answers(
    number: int, listed: Sequence[LedgerEntry], home: Path | None, config: Path | None
) -> dict[str, tuple[str, str]]:
    from afterwit.config import home_of, load
    from afterwit.home.model import model_folder
    from afterwit.printing.ledger import answers
    from afterwit.turn import Turn

    folder = home_of(home)
    settings = load(home=folder, file=config)
    found = [each.record.turn for each in listed if each.record is not None]
    turns = [turn for turn in found if isinstance(turn, Turn)]
    return answers(settings, folder, model_folder(settings.model, folder), number, turns)


def progress(
    png: Annotated[Path | None, typer.Option(help="Also draw it into this file (extra demo).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
    home: Home = None,
) -> None:
    """Am I correcting it less? Complaints a session over time, for each source and kind of task.

    Counted from the store alone. Intervals hold the true value in 95 of 100 cases.
    """
    from afterwit.printing.progress import as_json, draw, parts_of, text_of
    from afterwit.printing.terminal import Terminal
    from afterwit.promotion.watch import requests_of

    with store_of(home) as store:
        parts = parts_of(requests_of(store.all_episodes()))
    if json_:
        write_json(as_json(parts))
    else:
        console = Terminal()
        for line in text_of(parts):
            console.print(line)
    if png is not None:
        draw(parts["all"]["all"], png)
        print(f"wrote {png}", file=sys.stderr)


def versions(adapter: Adapter = None, json_: Json = False, home: Home = None) -> None:
    """List the weight versions: what each came from and learned from, and which one is served (*).

    Below them the newest updates that were held back, and alarms that took versions back.
    """
    from afterwit.adapters import SHARED
    from afterwit.printing.ledger import event_lines, version_table
    from afterwit.printing.terminal import Terminal
    from afterwit.promotion.events import EventKind

    with store_of(home) as store:
        rows = store.versions(adapter)
        if json_:
            for row in rows:
                write_json(row)
        else:
            events = store.events(adapter)
            served = {store.latest_published(each) for each in {SHARED, *(row.adapter for row in rows)}}
            places = {event.version for event in events if event.kind is EventKind.CONFIRM}
            console = Terminal()
            console.print(version_table(rows, served, places, width=console.width))
            for line in event_lines(events)[-EVENTS:]:
                console.print(line)
