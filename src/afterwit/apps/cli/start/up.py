"""`afterwit up`: start a model server, keep it running, and serve in front of it."""

from __future__ import annotations

from typing import Annotated

import typer

from afterwit.apps.cli.options import (
    Config,
    EngineUrl,
    Home,
    LearnerProcesses,
    Model,
    ModelOption,
    Recipe,
    RecordOnly,
    Set,
    addresses,
    chosen_model,
    switched_off,
)


def up(
    model: Model = None,
    model_option: ModelOption = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Which server to start: vllm or sglang. Default: that of the settings, or vllm."),
    ] = None,
    engine_url: EngineUrl = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on. Default 8720.")] = None,
    record_only: RecordOnly = False,
    learner_processes: LearnerProcesses = None,
    recipe: Recipe = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Start a server for MODEL with the flags that Afterwit needs, then do what `afterwit serve` does.

    With a section `placement`, all servers that have cards on this machine are started, each on its cards. A
    server is started again when it dies, and stopped at the end. Its log is HOME/engine.log.
    """
    from afterwit.apps.config import home_of, load
    from afterwit.apps.running.up import SERVER, run

    folder = home_of(home)
    direct = {
        "model": chosen_model(model, model_option),
        "engine.kind": engine,
        "engine.url": addresses(engine_url),
        "serve.host": host,
        "serve.port": port,
        "learner.processes": learner_processes,
    } | switched_off(record_only)
    settings = load(home=folder, file=config, pairs=set_ or (), direct=direct, recipe=recipe, unless=SERVER)
    run(settings, folder)
