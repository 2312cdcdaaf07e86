"""The commands before a start: `init`, `doctor`, `plan`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from afterwit.cli.options import (
    Config,
    Engine,
    EngineUrl,
    Home,
    Model,
    ModelOption,
    Recipe,
    RecordOnly,
    Set,
    addresses,
    chosen_model,
)

LOOPBACK = "127.0.0.1"


def init(
    model: Model = None,
    engine: Engine = None,
    engine_url: EngineUrl = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. Any but 127.0.0.1 needs --key.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Make an API key of this name, and print it once.")] = None,
    record_only: RecordOnly = False,
    home: Home = None,
) -> None:
    """Set up a home: ask what is needed, write config.toml, make a key, then test all with `doctor`.

    It asks only on a terminal, and only without MODEL; otherwise it uses the flags.
    """
    from afterwit.cli.keys import add
    from afterwit.config import home_of, load
    from afterwit.doctor.report import report
    from afterwit.errors import SettingError
    from afterwit.gateway.auth import is_loopback
    from afterwit.home.home import CONFIG, write_config

    folder = home_of(home)
    if (path := folder / CONFIG).exists():  # a person's file is never changed
        raise SettingError(f"{path} exists already: edit it, then run `afterwit doctor`")
    if model is None:
        if not sys.stdin.isatty():
            raise SettingError(
                "no model: name a Hugging Face folder or hub id, `afterwit init Qwen/Qwen3-0.6B`"
            )
        model, engine, engine_url, host, key, record_only = _ask()
    if key is None and not is_loopback(host or LOOPBACK):
        raise SettingError(
            f"--host {host} can be reached from other machines: name an API key too, --key NAME"
        )
    there = Path(model).expanduser()  # by its absolute path, because `serve` may run elsewhere
    settings = {
        "model": str(there.resolve()) if there.exists() else model,
        "serve.host": None if host == LOOPBACK else host,
        "engine.kind": None if engine == "embedded" else engine,
        "engine.url": addresses(engine_url),
        "judge.enabled": False if record_only else None,
        "learner.enabled": False if record_only else None,
    }
    load(home=folder, direct=settings)  # refused before anything is written
    written = write_config(folder, {name: value for name, value in settings.items() if value is not None})
    print(f"wrote {written}")
    if key is not None:
        print(f"the API key {key!r}, which is not shown again:")
        add(key, home=home)
    if not report(load(home=folder), folder):
        print("Fix this, then run `afterwit doctor`.", file=sys.stderr)
        raise typer.Exit(1)
    print("next: `afterwit serve`, and point an agent at the address that it prints")


def _ask() -> tuple[str, str, list[str] | None, str, str | None, bool]:
    """Model, engine, its address, host, key, and whether to record only."""
    model = typer.prompt("Model: a Hugging Face folder or hub id", default="Qwen/Qwen3-0.6B")
    engine = typer.prompt("Where it runs: embedded (here), vllm or sglang", default="embedded")
    url = None if engine == "embedded" else [typer.prompt("That server's address, as http://127.0.0.1:8000")]
    others = typer.confirm("May other machines call it?", default=False)
    key = typer.prompt("A name for their API key", default="first") if others else None
    learns = typer.confirm("Shall it learn from what it records?", default=True)
    return model, engine, url, "0.0.0.0" if others else LOOPBACK, key, not learns


def doctor(
    model: Model = None,
    model_option: ModelOption = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Check the model, the mathematics, the swap, the store and this machine; print remedies for faults."""
    from afterwit.config import home_of, load
    from afterwit.doctor.report import report

    folder = home_of(home)
    direct = {"model": chosen_model(model, model_option)}
    settings = load(home=folder, file=config, pairs=set_ or (), direct=direct)
    if not report(settings, folder):
        raise typer.Exit(1)


def plan(
    model: Model = None,
    model_option: ModelOption = None,
    gpu_memory: Annotated[
        str | None, typer.Option(help="Memory of a GPU, such as 80GB. Default: the GPUs of this machine.")
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, help="How many GPUs of that size there are.")] = 1,
    recipe: Recipe = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Show each part's GPUs, the memory that it takes, and the lines that start it. Starts nothing.

    Exit code 1, with the numbers, if something does not fit or does not go together.
    """
    from afterwit.config import home_of, load
    from afterwit.errors import AfterwitError, SettingError
    from afterwit.planning.gpus import gpus_here, named_gpus
    from afterwit.planning.report import report

    folder = home_of(home)
    direct = {"model": chosen_model(model, model_option)}
    flags = [
        *(("--recipe", recipe) if recipe else ()),
        *(("--config", str(config)) if config else ()),
        *(("--home", str(home)) if home else ()),
        *(word for pair in set_ or () for word in ("--set", pair)),
    ]
    try:
        settings = load(home=folder, file=config, pairs=set_ or (), direct=direct, recipe=recipe)
        if gpu_memory is not None and settings.placement.device == "cpu":
            raise SettingError(f"--gpu-memory {gpu_memory}: placement.device is cpu, so no part has a GPU")
        there = gpus_here(settings.placement) if gpu_memory is None else named_gpus(gpu_memory, gpus)
        print(report(settings, folder, there, flags=flags))
    except AfterwitError as error:
        print(f"afterwit: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
