"""The commands. Imports are inside the functions, so that `--help` is instant."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from afterwit.apps.cli import (
    atropos,
    control,
    demo,
    doctor,
    exporting,
    forget,
    importing,
    init,
    keeping,
    keys,
    ledger,
    review,
    serve,
    train,
    turns,
    up,
    versions,
)
from afterwit.core.errors import AfterwitError

EXTRAS = {
    "local": {"torch", "transformers", "safetensors", "numpy", "huggingface_hub", "peft", "llguidance"},
    "demo": {"openai", "matplotlib"},
    "atropos": {"atroposlib", "datasets", "tensorboardX"},
}
"""The modules that the base install leaves out, by the extra that installs them."""

app = typer.Typer(
    name="afterwit",
    help="Serves a Hugging Face model to agents, and trains it on what happens after each answer.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(init.init)
app.command()(serve.serve)
app.command()(up.up)
app.command()(demo.demo)
app.command()(control.status)
app.command()(turns.turns)
app.command()(turns.show)
app.command()(train.train)
app.command()(ledger.ledger)
app.command()(ledger.progress)
app.command()(versions.versions)
app.command()(versions.rollback)
app.command()(forget.forget)
app.command()(versions.requeue)
app.command()(control.pause)
app.command()(control.resume)
app.command()(review.review)
app.command()(review.exclude)
app.command()(exporting.export)
app.command("import")(importing.import_)
app.command()(keeping.backup)
app.command()(keeping.restore)
app.command()(keeping.du)
app.command()(keeping.merge)
app.add_typer(keys.app, name="keys")
app.add_typer(atropos.app, name="atropos")
app.command()(doctor.doctor)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    """Serves a Hugging Face model to agents, and trains it on what happens after each answer."""
    if version:
        from afterwit import __version__

        print(__version__)
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, the process's by default; our own errors are one line, without a traceback."""
    try:
        app(arguments)
    except AfterwitError as error:
        print(f"afterwit: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        extra = next((extra for extra, needs in EXTRAS.items() if error.name in needs), None)
        if extra is None:
            raise
        hint = f"install afterwit with its extra {extra}, for example pip install '.[{extra}]' in a clone"
        print(f"afterwit: this needs {error.name}: {hint}", file=sys.stderr)
        raise SystemExit(2) from None
