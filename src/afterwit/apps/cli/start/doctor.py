"""`afterwit doctor`: self-tests of this installation."""

from __future__ import annotations

import typer

from afterwit.apps.cli.options import Config, Home, Model, ModelOption, Set, chosen_model


def doctor(
    model: Model = None,
    model_option: ModelOption = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Check the model, the mathematics, the swap, the store and this machine; say what to do about faults."""
    from afterwit.apps.config import home_of, load
    from afterwit.apps.doctor.report import report

    folder = home_of(home)
    direct = {"model": chosen_model(model, model_option)}
    settings = load(home=folder, file=config, pairs=set_ or (), direct=direct)
    if not report(settings, folder):
        raise typer.Exit(1)
