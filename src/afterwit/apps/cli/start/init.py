"""`afterwit init`: the guided first start."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afterwit.apps.cli.options import Engine, EngineUrl, Home, Model, RecordOnly, addresses

if TYPE_CHECKING:
    from afterwit.apps.keeping.first_run import Answers


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

    It asks only on a terminal and only if MODEL is not named; otherwise the flags say everything.
    """
    from afterwit.apps.cli.keep.keys import add
    from afterwit.apps.config import home_of, load
    from afterwit.apps.doctor.report import report
    from afterwit.apps.keeping.first_run import Answers, refuse_second, write_config
    from afterwit.core.errors import SettingError

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
        print("mend that, then run `afterwit doctor`", file=sys.stderr)
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
    """A folder that is here by its whole path, because `serve` may run elsewhere; a hub id as it is."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.exists() else model
