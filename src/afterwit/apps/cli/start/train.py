"""`afterwit train`: learns from a store, or from an Atropos server, without serving."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from afterwit.apps.cli.options import (
    Config,
    Home,
    LearnerProcesses,
    Model,
    ModelOption,
    Recipe,
    Set,
    chosen_model,
)


class Source(StrEnum):
    """Where what is learned from comes from."""

    STORE = "store"
    ATROPOS = "atropos"


def train(
    model: Model = None,
    model_option: ModelOption = None,
    source: Annotated[
        Source,
        typer.Option("--from", help="The home's judged turns, or the batches of an Atropos server."),
    ] = Source.STORE,
    url: Annotated[
        str | None, typer.Option(help="Where the Atropos server answers. Default: atropos.url.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="With --from atropos: stop after this many updates.")
    ] = None,
    follow: Annotated[bool, typer.Option(help="Go on and wait for more turns until stopped.")] = False,
    learner_processes: LearnerProcesses = None,
    recipe: Recipe = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Train on the judged turns of a store, batch by batch, writing a version for each update.

    With `--from atropos`, on the groups that Atropos environments send to their server, until stopped. A
    running `serve` on the same home publishes the versions; without one they wait in HOME/versions.
    """
    from afterwit.apps.config import home_of, load
    from afterwit.apps.running.train import run, run_atropos
    from afterwit.core.errors import SettingError

    folder = home_of(home)
    direct = {
        "model": chosen_model(model, model_option),
        "atropos.url": url,
        "learner.processes": learner_processes,
    }
    if source is Source.STORE:
        if url is not None or steps is not None:
            raise SettingError("--url and --steps are of --from atropos")
        settings = load(home=folder, file=config, pairs=set_ or (), direct=direct, recipe=recipe)
        run(settings, folder, forever=follow)
        return
    below = {"objective": {"baseline": "group"}}  # scores have any scale: they say something within a group
    settings = load(home=folder, file=config, pairs=set_ or (), direct=direct, below=below, recipe=recipe)
    run_atropos(settings, folder, steps=steps)
