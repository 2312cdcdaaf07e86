"""`versions`, `rollback`, `requeue`: show what was learned, take it back, repeat it."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from afterwit.apps.cli.options import Home, Json

EVENTS = 8
"""Holds and alarms that `versions` shows."""


def versions(json_: Json = False, home: Home = None) -> None:
    """List the weight versions: what each came from and learned from, and which one is served (*).

    Below them the newest updates that were held back, and alarms that took versions back.
    """
    from dataclasses import asdict

    import orjson
    from rich.console import Console

    from afterwit.apps.build import store_of_home
    from afterwit.apps.tables import event_lines, version_table
    from afterwit.core.promotion import EventKind

    with store_of_home(home) as store:
        rows = store.versions()
        if json_:
            for row in rows:
                sys.stdout.buffer.write(orjson.dumps(asdict(row)) + b"\n")
        else:
            events = store.events()
            places = {event.version for event in events if event.kind is EventKind.CONFIRM}
            console = Console()
            console.print(version_table(rows, store.latest_published(), places))
            for line in event_lines(events)[-EVENTS:]:
                console.print(line)


def rollback(
    version: Annotated[int, typer.Argument(help="The version to return to; 0 is the model as it came.")],
    home: Home = None,
) -> None:
    """Take learning back: publish a new version with an old one's weights and optimiser state.

    The turns trained since are marked reverted and never train again by themselves. A running `serve` picks
    the new version up within a second.
    """
    from afterwit.apps.build import store_of_home, versions_of
    from afterwit.apps.config import home_of, load
    from afterwit.apps.model import model_folder
    from afterwit.checkpoints import roll_back

    folder = home_of(home)
    versions = versions_of(folder, model_folder(load(home=folder).model, folder))
    with store_of_home(home) as store:
        made = roll_back(versions, version, now=time.time())
        store.commit_version(made, now=time.time())
    taken = ", ".join(map(str, made.reverts)) or "none"
    print(f"version {made.number} has the weights of version {version}; updates taken back: {taken}")


def requeue(
    turns: Annotated[list[str] | None, typer.Argument(help="Turn ids; none: every turn that failed.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only turns skipped for this reason.")] = None,
    home: Home = None,
) -> None:
    """Put failed turns back where their step failed."""
    from afterwit.apps.build import store_of_home
    from afterwit.apps.tables import choice
    from afterwit.core.lifecycle import Reason

    why = choice(Reason, reason, "--reason")
    with store_of_home(home) as store:
        count = store.requeue(turns or None, reason=why, now=time.time())
    print(f"{count} turn{'s' if count != 1 else ''} put back")
