"""`afterwit import`: conversations that another program recorded."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afterwit.apps.cli.options import Home

if TYPE_CHECKING:
    from afterwit.apps.importing import Imported

SHOWN = 20
"""Most bad lines that are named."""


def import_(
    file: Annotated[
        Path, typer.Argument(help='JSONL: `{"messages": [...]}` a line, or records of OpenClaw-RL.')
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be imported, and store nothing.")
    ] = False,
    judge: Annotated[bool, typer.Option(help="Have `serve` judge what has a next state.")] = True,
    home: Home = None,
) -> None:
    """Import conversations recorded elsewhere: they are judged, shown and exported, never trained on.

    What an earlier import brought is not imported again. A bad line is named and left out; the exit status is
    1 then.
    """
    from rich.console import Console
    from rich.progress import Progress

    from afterwit.apps.build import store_of_home
    from afterwit.apps.config import home_of, store_settings
    from afterwit.apps.home import store_url
    from afterwit.apps.importing import counting, import_lines
    from afterwit.apps.stores import store_exists
    from afterwit.core.errors import SettingError

    try:
        source, size = file.open("rb"), file.stat().st_size
    except OSError as error:
        raise SettingError(f"{file} cannot be read: {error.strerror}") from error
    with ExitStack() as stack:
        lines = stack.enter_context(source)
        folder = home_of(home)
        there = store_exists(store_url(folder, store_settings(folder).url))
        store = stack.enter_context(store_of_home(home, make=not dry_run)) if there or not dry_run else None
        progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        task = progress.add_task("importing", total=size)
        done = import_lines(
            counting(lines, lambda read: progress.advance(task, read)),
            store,
            judge=judge,
            dry_run=dry_run,
            now=time.time,
        )
    _say(done, dry_run=dry_run)
    if done.bad:
        raise typer.Exit(1)


def _say(done: Imported, *, dry_run: bool) -> None:
    for bad in done.bad[:SHOWN]:
        print(f"line {bad.number}: {bad.reason}", file=sys.stderr)
    if len(done.bad) > SHOWN:
        print(f"... and {len(done.bad) - SHOWN} more", file=sys.stderr)
    would = "would be " if dry_run else ""
    known = f"; {done.known} {'was' if done.known == 1 else 'were'} there already" if done.known else ""
    left = f"; {_counted(len(done.bad), 'line')} left out" if done.bad else ""
    found = f"{_counted(done.turns, 'turn')} of {_counted(done.conversations, 'conversation')}"
    print(f"{found} {would}imported{known}{left}")


def _counted(number: int, noun: str) -> str:
    """ "1 line", "2 lines"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
