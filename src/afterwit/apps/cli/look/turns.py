"""`afterwit turns` and `afterwit show`: what was recorded, and how it was judged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from afterwit.apps.cli.options import Config, Home, Json, LearnedIn, choice

if TYPE_CHECKING:
    from afterwit.store import Counts, Record, Store

ALL = "all"
LAST = "last"


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
    from afterwit.apps.build import store_of_home
    from afterwit.core.lifecycle import Reason, State
    from afterwit.core.turn import Kind
    from afterwit.store import Filter

    where = Filter(
        session=session,
        state=choice(State, state, "--state"),
        reason=choice(Reason, reason, "--reason"),
        kind=None if kind == ALL else choice(Kind, kind, "--kind"),
        version=version,
    )
    with store_of_home(home) as store:
        found = store.turns(where, limit=limit or None, newest_first=limit > 0)
        if json_:
            _print_lines(found)
        else:
            _print_table(list(found), store.counts(), kind)


def _print_lines(records: Iterable[Record]) -> None:
    import sys

    import orjson

    from afterwit.apps.printing.unbound import why_unbound
    from afterwit.store.export import summary

    for record in records:
        line = summary(record) | {"unbound": why_unbound(record)}
        sys.stdout.buffer.write(orjson.dumps(line) + b"\n")


def _print_table(records: list[Record], counts: Counts, kind: str) -> None:
    from afterwit.apps.printing.terminal import Terminal
    from afterwit.apps.printing.turns import counts_line, turn_table, unbound_lines

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
    from afterwit.apps.build import store_of_home
    from afterwit.apps.config import home_of, load
    from afterwit.apps.printing.ledger import became
    from afterwit.apps.printing.show import show_turn
    from afterwit.core.ids import turn_of_response

    folder = home_of(home)
    settings = load(home=folder, file=config)
    with store_of_home(home) as store:
        record = store.turn(last(store) if turn == LAST else store.resolve(turn_of_response(turn)))
        group = store.group_rewards([record.turn.id]) if settings.objective.reads_groups else {}
        rewards = group.get(record.turn.id, ())
        show_turn(
            record,
            settings,
            folder,
            advantages=advantages,
            group_rewards=rewards,
            became=became(store, record),
        )


def last(store: Store) -> str:
    """The newest turn of a conversation, whatever its state; without any, the newest turn."""
    from afterwit.core.errors import SettingError
    from afterwit.core.turn import Kind
    from afterwit.store import Filter

    for where in (Filter(kind=Kind.MAIN), None):
        found = next(iter(store.turns(where, limit=1, newest_first=True)), None)
        if found is not None:
            return found.turn.id
    raise SettingError("no turn is recorded yet: point an agent at `afterwit serve` first")
