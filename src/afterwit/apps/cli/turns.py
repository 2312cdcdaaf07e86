"""`afterwit turns` and `afterwit show`: what was recorded, and what hindsight made of it."""

from __future__ import annotations

from typing import Annotated

import typer

from afterwit.apps.cli.options import Home, Json, moment


def turns(
    state: Annotated[str | None, typer.Option(help="OPEN, ANSWERED, JUDGED, TRAINED or SKIPPED.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only turns skipped for this reason.")] = None,
    session: Annotated[str | None, typer.Option(help="Only turns of this session.")] = None,
    version: Annotated[int | None, typer.Option(help="Only turns that this version learned from.")] = None,
    limit: Annotated[int, typer.Option(help="How many, the newest first; 0: all, the oldest first.")] = 20,
    json_: Json = False,
    home: Home = None,
) -> None:
    """List turns: where each stands, and why."""
    from afterwit.apps.build import store_of_home
    from afterwit.apps.tables import choice
    from afterwit.core.lifecycle import Reason, State
    from afterwit.store import Filter

    where = Filter(
        session=session,
        state=choice(State, state, "--state"),
        reason=choice(Reason, reason, "--reason"),
        version=version,
    )
    with store_of_home(home) as store:
        found = store.turns(where, limit=limit or None, newest_first=limit > 0)
        if json_:
            _print_lines(found)
        else:
            _print_table(list(found), store.counts())


def _print_lines(records) -> None:  # type: ignore[no-untyped-def]
    import sys

    import orjson

    from afterwit.store.export import summary

    for record in records:
        sys.stdout.buffer.write(orjson.dumps(summary(record)) + b"\n")


def _print_table(records, counts) -> None:  # type: ignore[no-untyped-def]
    from rich.console import Console

    from afterwit.apps.tables import counts_line, turn_table

    console = Console()
    console.print(turn_table(records, moment))
    console.print(counts_line(counts))


def show(
    turn: Annotated[str, typer.Argument(help="A turn's id, or the response id chatcmpl-...")],
    advantages: Annotated[
        bool, typer.Option(help="Score the response with the hint, token by token (loads the model).")
    ] = True,
    home: Home = None,
    config: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Show one turn: prompt's end, response, next state, votes, hints, each token's advantage in colour."""
    from pathlib import Path

    from afterwit.apps.build import store_of_home
    from afterwit.apps.config import home_of, load
    from afterwit.apps.show import show_turn

    folder = home_of(home)
    settings = load(home=folder, file=Path(config) if config else None)
    with store_of_home(home) as store:
        record = store.turn(turn.removeprefix("chatcmpl-"))
        show_turn(record, settings, folder, advantages=advantages)
