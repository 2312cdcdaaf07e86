"""`afterwit count turns`: how many answers the home holds."""

from __future__ import annotations

import typer

from afterwit.api.commands import Home, store_of
from afterwit.api.stores import Filter
from afterwit.api.turns import Kind

app = typer.Typer(help="Count what the home holds.", no_args_is_help=True)


@app.command()
def turns(home: Home = None) -> None:
    """Print the number of answers to clients, without titles, summaries and practice."""
    with store_of(home) as store:
        print(sum(1 for _ in store.turns(Filter(kind=Kind.MAIN))))
