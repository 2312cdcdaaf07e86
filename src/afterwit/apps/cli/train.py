"""`afterwit train`: learns from a store without serving."""

from __future__ import annotations

from typing import Annotated

import typer

from afterwit.apps.cli.options import Config, Home, Model, ModelOption, Recipe, Set, chosen_model


def train(
    model: Model = None,
    model_option: ModelOption = None,
    follow: Annotated[bool, typer.Option(help="Go on and wait for more turns until stopped.")] = False,
    recipe: Recipe = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Train on the judged turns of a store, batch by batch, writing a version for each update.

    A running `serve` on the same home publishes them; without one they wait in HOME/versions.
    """
    from afterwit.apps.config import home_of, load
    from afterwit.apps.train import run

    folder = home_of(home)
    direct = {"model": chosen_model(model, model_option)}
    settings = load(home=folder, file=config, pairs=set_ or (), direct=direct, recipe=recipe)
    run(settings, folder, forever=follow)
