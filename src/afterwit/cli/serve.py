"""The commands that run until they are stopped: `serve`, `up`, `train`."""

from __future__ import annotations

from typing import Annotated

import typer

from afterwit.cli.options import (
    Config,
    Engine,
    EngineUrl,
    Home,
    Host,
    LearnerProcesses,
    Model,
    ModelOption,
    Port,
    Recipe,
    RecordOnly,
    Set,
    chosen_model,
    serving,
)


def serve(
    model: Model = None,
    model_option: ModelOption = None,
    engine: Engine = None,
    engine_url: EngineUrl = None,
    host: Host = None,
    port: Port = None,
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
    from afterwit.config import home_of, load
    from afterwit.running.serve import run

    folder = home_of(home)
    named = chosen_model(model, model_option)
    direct = serving(named, engine, engine_url, host, port, learner_processes, record_only=record_only)
    settings = load(home=folder, file=config, pairs=set_ or (), direct=direct, recipe=recipe)
    run(settings, folder, tuple(part.strip() for part in stages.split(",") if part.strip()))


def up(
    model: Model = None,
    model_option: ModelOption = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Which server to start: vllm or sglang. Default: that of the settings, or vllm."),
    ] = None,
    engine_url: EngineUrl = None,
    host: Host = None,
    port: Port = None,
    record_only: RecordOnly = False,
    learner_processes: LearnerProcesses = None,
    recipe: Recipe = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Start a server for MODEL with the flags that Afterwit needs, then do what `afterwit serve` does.

    With a section `placement`, all servers that have GPUs on this machine are started, each on its GPUs. A
    server is started again when it dies, and stopped at the end. Its log is HOME/engine.log.
    """
    from afterwit.config import home_of, load
    from afterwit.running.up import SERVER, run

    folder = home_of(home)
    named = chosen_model(model, model_option)
    direct = serving(named, engine, engine_url, host, port, learner_processes, record_only=record_only)
    settings = load(home=folder, file=config, pairs=set_ or (), direct=direct, recipe=recipe, unless=SERVER)
    run(settings, folder)


def train(
    model: Model = None,
    model_option: ModelOption = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", help="Train on batches from elsewhere: atropos, or another installed package."
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="With --from: where the batches are. Default: atropos.url.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="With --from: stop after this many updates.")
    ] = None,
    follow: Annotated[bool, typer.Option(help="Go on and wait for more turns until stopped.")] = False,
    learner_processes: LearnerProcesses = None,
    recipe: Recipe = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Train on the judged turns of a store, batch by batch, writing a version for each update.

    With `--from atropos` (package afterwit-atropos) it trains on the groups that Atropos environments send to
    their server, until stopped. A running `serve` on the same home publishes the versions; without one they
    wait in HOME/versions.
    """
    from afterwit import plugins
    from afterwit.config import home_of, load
    from afterwit.errors import SettingError
    from afterwit.running.train import run

    if source is None and (url is not None or steps is not None):
        raise SettingError("--url and --steps need --from")
    folder = home_of(home)
    direct = {"model": chosen_model(model, model_option), "learner.processes": learner_processes}
    below = None
    if source is not None:
        below, direct[f"{source}.url"] = plugins.load(plugins.BATCHES, source).defaults, url
    settings = load(home=folder, file=config, pairs=set_ or (), direct=direct, below=below, recipe=recipe)
    run(settings, folder, forever=follow, source=source, steps=steps)
