"""`afterwit serve`: all stages, or some of them."""

from __future__ import annotations

from typing import Annotated

import typer

from afterwit.apps.cli.options import (
    Config,
    Engine,
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


def serve(
    model: Model = None,
    model_option: ModelOption = None,
    engine: Engine = None,
    engine_url: EngineUrl = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on. Default 8720.")] = None,
    stages: Annotated[
        str, typer.Option(help="Which stages run here, comma-separated: gateway, judge, learn.")
    ] = "gateway,judge,learn",
    record_only: RecordOnly = False,
    learner_processes: LearnerProcesses = None,
    recipe: Recipe = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Serve MODEL to agents, and let it learn from what happens next.

    Point an agent at `http://127.0.0.1:8720/v1` with any API key and model name `afterwit`.
    """
    from afterwit.apps.config import home_of, load
    from afterwit.apps.running.serve import run

    folder = home_of(home)
    direct = {
        "model": chosen_model(model, model_option),
        "engine.kind": engine,
        "engine.url": addresses(engine_url),
        "serve.host": host,
        "serve.port": port,
        "learner.processes": learner_processes,
    } | switched_off(record_only)
    settings = load(home=folder, file=config, pairs=set_ or (), direct=direct, recipe=recipe)
    run(settings, folder, tuple(part.strip() for part in stages.split(",") if part.strip()))
