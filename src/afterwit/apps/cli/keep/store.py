"""`afterwit store`: where turns are stored."""

from __future__ import annotations

from typing import Annotated

import typer

from afterwit.apps.cli.options import Home

app = typer.Typer(
    help="Where turns are stored: in a file of the home, or in PostgreSQL.", no_args_is_help=True
)


@app.callback()
def store() -> None:
    """Where turns are stored: in a file of the home, or in PostgreSQL."""


@app.command()
def copy(
    to: Annotated[
        str, typer.Argument(help="postgresql://user@host/database, sqlite:/a/file, or home: its store.db.")
    ],
    source: Annotated[
        str | None, typer.Option("--from", help="As TO. Default: the store that the home uses.")
    ] = None,
    home: Home = None,
) -> None:
    """Copy all turns, verdicts, versions and keys into another, empty store. Nothing may run meanwhile.

    The store that was copied stays as it is. Afterwards name the other one as store.url in config.toml.
    """
    from afterwit.apps.config import home_of, store_settings
    from afterwit.apps.home import CONFIG
    from afterwit.apps.keeping.moving import HOME, copy_store

    folder = home_of(home)
    turns = copy_store(folder, store_settings(folder).url, source=source, target=to)
    then = "leave store.url out of" if to == HOME else "set store.url to it in"
    print(f"{turns} turns are copied; to use the copy, {then} {folder / CONFIG}")
