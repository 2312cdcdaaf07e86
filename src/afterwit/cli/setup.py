"""The commands before a start: `init`, `doctor`, `plan`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from afterwit.home.first_run import Answers


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
    from afterwit.home.first_run import Answers, refuse_second, write_config

    folder = home_of(home)
    refuse_second(folder)
    if model is not None:
        answers = Answers(
            model=_absolute(model),
            engine=engine or "embedded",
            url=addresses(engine_url),
            host=host or "127.0.0.1",
            key=key,
            record_only=record_only,
        )
    elif sys.stdin.isatty():
        answers = _ask(Answers)
    else:
        raise SettingError("no model: name a Hugging Face folder or hub id, `afterwit init Qwen/Qwen3-0.6B`")
    load(home=folder, direct=answers.settings())  # refused before anything is written
    print(f"wrote {write_config(folder, answers)}")
    if answers.key is not None:
        print(f"the API key {answers.key!r}, which is not shown again:")
        add(answers.key, home=home)
    if not report(load(home=folder), folder):
        print("Fix this, then run `afterwit doctor`.", file=sys.stderr)
        raise typer.Exit(1)
    print("next: `afterwit serve`, and point an agent at the address that it prints")


def _ask(answers: type[Answers]) -> Answers:
    model = typer.prompt("Model: a Hugging Face folder or hub id", default="Qwen/Qwen3-0.6B")
    engine = typer.prompt("Where it runs: embedded (here), vllm or sglang", default="embedded")
    url = None if engine == "embedded" else typer.prompt("That server's address, as http://127.0.0.1:8000")
    others = typer.confirm("May other machines call it?", default=False)
    key = typer.prompt("A name for their API key", default="first") if others else None
    learns = typer.confirm("Shall it learn from what it records?", default=True)
    host = "0.0.0.0" if others else "127.0.0.1"
    return answers(model=_absolute(model), engine=engine, url=url, host=host, key=key, record_only=not learns)


def _absolute(model: str) -> str:
    """An existing folder by its absolute path, because `serve` may run elsewhere; a hub id unchanged."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.exists() else model


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
