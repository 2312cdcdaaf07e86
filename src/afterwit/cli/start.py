"""The commands that start something: `init`, `plan`, `serve`, `up`, `demo`, `train`, `doctor`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from afterwit import recipes
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
    end_at_signals,
    loaded,
)
from afterwit.errors import AfterwitError, SettingError

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
    """Set up a home: ask for the model and more, write config.toml, make a key, then run `doctor`.

    It asks only on a terminal, and only without MODEL; otherwise it uses the flags.

        afterwit init Qwen/Qwen3-0.6B    # this machine alone
        afterwit init Qwen/Qwen3-0.6B --host 0.0.0.0 --key laptop
    """
    from afterwit.cli.maintain import add
    from afterwit.config import home_of, load
    from afterwit.doctor.report import report
    from afterwit.gateway.auth import check_name, is_loopback
    from afterwit.home.home import CONFIG, expanded, write_config
    from afterwit.home.model import model_folder

    folder = home_of(home)
    if (path := folder / CONFIG).exists():  # a person's file is never changed
        raise SettingError(f"{path} exists already: edit it, then run `afterwit doctor`")
    if model is None:
        model, engine, engine_url, host, key, record_only = _ask()
    if key is None and not is_loopback(host or LOOPBACK):
        raise SettingError(
            f"--host {host} can be reached from other machines: name an API key too, --key NAME"
        )
    if key is not None:
        check_name(key)
    there = expanded(model)  # by its absolute path, because `serve` may run elsewhere
    model = str(there.resolve()) if there.exists() else model
    engine, host = None if engine == "embedded" else engine, None if host == LOOPBACK else host
    settings = _flags(model, engine, engine_url, host, record_only=record_only)
    end_at_signals()
    model_folder(load(home=folder, direct=settings).model, folder)  # refused before anything is written
    print(f"wrote {write_config(folder, settings)}")
    if key is not None:
        print(f"the API key {key!r}, which is not shown again:")
        add(key, home=home)
    if not report(load(home=folder), folder):
        print("Fix this, then run `afterwit doctor`.", file=sys.stderr)
        raise typer.Exit(1)
    print("next: `afterwit serve`, and point an agent at the address that it prints")


def _ask() -> tuple[str, str, list[str] | None, str, str | None, bool]:
    """Model, engine, its address, host, key, and whether to record only. SettingError without a terminal."""
    if not sys.stdin.isatty():
        raise SettingError("no model: name a Hugging Face folder or hub id, `afterwit init Qwen/Qwen3-0.6B`")
    model = typer.prompt("Model: a Hugging Face folder or hub id", default="Qwen/Qwen3-0.6B")
    engine = typer.prompt("Where it runs: embedded (here), vllm, sglang or llama_cpp", default="embedded")
    url = None if engine == "embedded" else [typer.prompt("That server's address, as http://127.0.0.1:8000")]
    others = typer.confirm("May other machines call it?", default=False)
    key = typer.prompt("A name for their API key", default="first") if others else None
    learns = typer.confirm("Should it learn from what it records?", default=True)
    return model, engine, url, "0.0.0.0" if others else LOOPBACK, key, not learns


def plan(
    model: Model = None,
    model_option: ModelOption = None,
    gpu_memory: Annotated[
        str | None, typer.Option(help="Memory of a GPU, such as 80GB. Default: the GPUs of this machine.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Number of GPUs with --gpu-memory. Default: 1.")
    ] = None,
    recipe: Recipe = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Show each part's GPUs, memory and command, without starting anything.

    Exit code 1, with the numbers, if something does not fit or settings contradict each other.

        afterwit plan Qwen/Qwen3-4B
        afterwit plan Qwen/Qwen3-4B --gpu-memory 80GB --gpus 8
    """
    end_at_signals()
    from afterwit.planning.gpus import gpus_here, named_gpus
    from afterwit.planning.report import report
    from afterwit.printing.terminal import working

    direct = {"model": _model(model, model_option)}
    flags = [
        *(("--recipe", recipe) if recipe else ()),
        *(("--config", str(config)) if config else ()),
        *(("--home", str(home)) if home else ()),
        *(word for pair in set_ or () for word in ("--set", pair)),
    ]
    try:
        if gpus is not None and gpu_memory is None:
            raise SettingError(f"--gpus needs --gpu-memory, as in --gpu-memory 80GB --gpus {gpus}")
        settings, folder = loaded(home, config, set_, direct, recipe=recipe)
        if gpu_memory is not None and settings.placement.device == "cpu":
            raise SettingError(f"--gpu-memory {gpu_memory}: placement.device is cpu, so no part has a GPU")
        with working("reading the sizes of the model's weights"):
            there = gpus_here(settings.placement) if gpu_memory is None else named_gpus(gpu_memory, gpus or 1)
            planned = report(settings, folder, there, flags=flags)
        print(planned)
    except AfterwitError as error:
        print(f"afterwit: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


def serve(
    model: Model = None,
    model_option: ModelOption = None,
    engine: Engine = None,
    engine_url: EngineUrl = None,
    host: Host = None,
    port: Port = None,
    stages: Annotated[
        str, typer.Option(help="The stages that run here, comma-separated: gateway, judge, learn.")
    ] = "gateway,judge,learn",
    record_only: RecordOnly = False,
    learner_processes: LearnerProcesses = None,
    recipe: Recipe = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Serve MODEL to agents, and train it on what happens next.

    Point an agent at `http://127.0.0.1:8720/v1` with any API key and model name `afterwit`.

        afterwit serve Qwen/Qwen3-0.6B
        afterwit serve Qwen/Qwen3-0.6B --record-only    # look before it learns
        afterwit serve --engine vllm --engine-url http://127.0.0.1:8000
    """
    end_at_signals()
    from afterwit.running.serve import run

    named = _model(model, model_option)
    direct = _flags(named, engine, engine_url, host, port, learner_processes, record_only=record_only)
    settings, folder = loaded(home, config, set_, direct, recipe=recipe)
    run(settings, folder, tuple(part.strip() for part in stages.split(",") if part.strip()))


def up(
    model: Model = None,
    model_option: ModelOption = None,
    engine: Annotated[
        str | None,
        typer.Option(help="The server to start: vllm, sglang or llama_cpp. Default: as set, or vllm."),
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

    With a section `placement`, it starts every server that has GPUs on this machine. It restarts a server
    that dies, and stops all at the end. The log is HOME/engine.log.

        afterwit up Qwen/Qwen3-4B
        afterwit up Qwen/Qwen3-4B --engine sglang
        afterwit up FILE.gguf --engine llama_cpp
    """
    end_at_signals()
    from afterwit.running.up import SERVER, run

    named = _model(model, model_option)
    direct = _flags(named, engine, engine_url, host, port, learner_processes, record_only=record_only)
    run(*loaded(home, config, set_, direct, recipe=recipe, unless=SERVER))


def demo(
    world: Annotated[
        str,
        typer.Option(help="tools: a project's house rules, real files. chat: how a person likes answers."),
    ] = "tools",
    recipe: Annotated[
        str | None, typer.Option(help=f"A published recipe: {', '.join(recipes.names())}.")
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="hybrid, topk_opd, token_opd, rl, ... Default: the recipe's.")
    ] = None,
    interactions: Annotated[int, typer.Option(help="Tasks that people give.")] = 48,
    seed: Annotated[int, typer.Option(help="Decides tasks and people; answers are sampled anew.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the report. Default: demo-report, in the chat world demo-report-chat."),
    ] = None,
    judge: Annotated[str | None, typer.Option(help="model or rules. Default: the recipe's.")] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="The engine that samples: vllm or sglang, started for the demo. Default: embedded."
        ),
    ] = None,
    engine_url: Annotated[
        str | None, typer.Option(help="A running server of the demo's model, used instead of starting one.")
    ] = None,
    set_: Set = None,
) -> None:
    """Watch an agent learn from use: real gateway, real clients, a tiny model, a few minutes, no GPU.

    Leaves report.html, report.json and learning.svg in OUT.

        afterwit demo
        afterwit demo --world chat --interactions 36 --seed 1
    """
    end_at_signals()
    from afterwit.demo.command import run

    if recipe in recipes.machines():
        raise SettingError(
            f"--recipe {recipe} is for a machine with GPUs: the demo takes {', '.join(recipes.names())}"
        )
    run(
        world,
        out=out or Path("demo-report" if world == "tools" else f"demo-report-{world}"),
        interactions=interactions,
        seed=seed,
        judge=judge,
        recipe=recipe,
        pairs=set_ or (),
        direct={"objective.objective": objective, "engine.kind": engine, "engine.url": engine_url},
    )


def trial(
    model: Model = None,
    model_option: ModelOption = None,
    minutes: Annotated[float, typer.Option(help="Minutes after which the trial stops and reports.")] = 15.0,
    conversations: Annotated[int, typer.Option(help="Conversations at most.")] = 96,
    preference: Annotated[
        str | None,
        typer.Option(
            help="The person's preference, such as short or greeting. Default: the most teachable one."
        ),
    ] = None,
    judge: Annotated[
        str,
        typer.Option(help="model: the judge of the settings. rules: a program that understands the person."),
    ] = "model",
    problems: Annotated[
        Path | None,
        typer.Option(
            help="JSON Lines with question and answer, as GSM8K has them: a student and a teacher join."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides questions and wordings; answers are sampled anew.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the report and its home.")] = Path("trial-report"),
    engine: Engine = None,
    engine_url: EngineUrl = None,
    recipe: Recipe = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Find out whether MODEL learns here: people talk with it, it learns, held-out questions measure it.

    Uses the settings of `serve`, in a home of its own. After an interruption, the same command continues.
    Exit code 1 if the model did not learn. Leaves report.html, report.json and learning.svg in OUT.

        afterwit trial Qwen/Qwen3-0.6B
        afterwit trial Qwen/Qwen3-4B --engine vllm --minutes 60
    """
    end_at_signals()
    from afterwit.trial.command import Asked, run

    asked = Asked(
        minutes=minutes,
        conversations=conversations,
        preference=preference,
        judge=judge,
        problems=problems,
        seed=seed,
    )
    flags = _flags(_model(model, model_option), engine, engine_url, None, record_only=False)
    if not run(asked, out=out, pairs=set_ or (), file=config, recipe=recipe, direct=flags):
        raise typer.Exit(1)


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
        str | None, typer.Option(help="With --from: the address of the batches. Default: atropos.url.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="With --from: stop after this many updates.")
    ] = None,
    follow: Annotated[bool, typer.Option(help="Continue and wait for more turns until stopped.")] = False,
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

        afterwit train
        afterwit train Qwen/Qwen3-0.6B --from atropos --steps 100
    """
    end_at_signals()
    from afterwit.running.train import BATCHES, run

    if source is None and (url is not None or steps is not None):
        raise SettingError("--url and --steps need --from")
    direct = {"model": _model(model, model_option), "learner.processes": learner_processes}
    below = None
    if source is not None:
        below, direct[f"{source}.url"] = BATCHES.loaded(source).defaults, url
    settings, folder = loaded(home, config, set_, direct, below=below, recipe=recipe)
    run(settings, folder, forever=follow, source=source, steps=steps)


def doctor(
    model: Model = None,
    model_option: ModelOption = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only the checks that load no weights.")] = False,
) -> None:
    """Check the model, the mathematics, the swap, the store and this machine; print remedies for faults.

    afterwit doctor Qwen/Qwen3-0.6B
    afterwit doctor --quick
    """
    end_at_signals()
    from afterwit.doctor.report import report

    if not report(*loaded(home, config, set_, {"model": _model(model, model_option)}), quick=quick):
        raise typer.Exit(1)


def _model(argument: str | None, option: str | None) -> str | None:
    """The named model; SettingError if two are named."""
    if argument and option and argument != option:
        raise SettingError(f"two models are named, {argument} and --model {option}: name one")
    return argument or option


def _flags(
    model: str | None,
    engine: str | None,
    engine_url: list[str] | None,
    host: str | None,
    port: int | None = None,
    learner_processes: int | None = None,
    *,
    record_only: bool,
) -> dict[str, Any]:
    """The settings that the flags of `init`, `serve` and `up` give; None: not given."""
    off = False if record_only else None
    return {
        "model": model,
        "serve.host": host,
        "serve.port": port,
        "engine.kind": engine,
        "engine.url": engine_url[0] if engine_url and len(engine_url) == 1 else engine_url or None,
        "learner.processes": learner_processes,
        "judge.enabled": off,
        "learner.enabled": off,
    }
