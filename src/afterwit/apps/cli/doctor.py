"""`afterwit doctor`: does everything here do what it says?"""

from __future__ import annotations

from typing import Annotated

import typer

from afterwit.apps.cli.options import Config, Home, Set


def doctor(
    model: Annotated[
        str | None, typer.Argument(help="The model to check; default: the configured one.")
    ] = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Check the model, the mathematics, the swap, the store and this machine; say what to do about faults."""
    from afterwit.apps.config import home_of, load
    from afterwit.apps.doctor.report import report

    folder = home_of(home)
    settings = load(home=folder, file=config, pairs=set_ or (), direct={"model": model})
    if not report(settings, folder):
        raise typer.Exit(1)
