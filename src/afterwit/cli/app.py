"""The commands. Imports are inside the functions, so that `--help` is instant."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Sequence
from functools import cache

import typer
from typer.main import get_command

from afterwit import plugins
from afterwit.cli import look, maintain, start, steer
from afterwit.cli.help import Command, Group
from afterwit.cli.steer import lessons_app
from afterwit.errors import AfterwitError, SettingError

EXTRAS = {
    "otlp": {"opentelemetry.sdk", "opentelemetry.exporter"},
    "tracking": {"wandb", "tensorboardX", "trackio", "mlflow"},
    "local": {"torch", "transformers", "safetensors", "numpy", "huggingface_hub", "peft", "llguidance"},
    "demo": {"openai", "matplotlib"},
    "postgresql": {"psycopg"},
    "gguf": {"gguf"},
    "s3": {"fsspec", "s3fs"},
}
"""The modules that the base install leaves out, by the extra that installs them."""
REFUSED = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),
    *(errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE),
}
"""Errors of the machine: no room, no permission, no more open files, a broken disk."""

app = typer.Typer(
    name="afterwit",
    no_args_is_help=True,
    cls=Group,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Start": (
        *(start.init, start.plan, start.serve, start.up, start.demo),
        *(start.trial, start.train, start.doctor),
    ),
    "Look": (
        *(look.status, look.turns, look.show, look.ledger),
        *(look.progress, look.judges, look.versions),
    ),
    "Steer": (
        *(steer.pause, steer.resume, steer.review, steer.exclude),
        *(steer.rollback, steer.requeue, steer.forget),
    ),
    "Maintain": (
        *(maintain.import_, maintain.export, maintain.backup),
        *(maintain.restore, maintain.du, maintain.merge),
    ),
}
"""The commands as `--help` groups them."""


for panel, commands in PANELS.items():
    for each in commands:
        app.command(each.__name__.rstrip("_"), cls=Command, rich_help_panel=panel)(each)
app.add_typer(lessons_app, name="lessons", rich_help_panel="Look")
app.add_typer(maintain.keys_app, name="keys", rich_help_panel="Maintain")
app.add_typer(maintain.store_app, name="store", rich_help_panel="Maintain")


def _is_new(name: str, group: typer.Typer) -> None:
    if name in OURS:
        raise ValueError("Afterwit has a command of this name")


OURS = {*(each.name for each in app.registered_commands), *(each.name for each in app.registered_groups)}
GROUPS = plugins.Table(plugins.COMMANDS, typer.Typer, check=_is_new)
for name in plugins.installed(plugins.COMMANDS):
    try:
        app.add_typer(GROUPS.loaded(name), name=name, rich_help_panel="Packages")
    except SettingError as error:  # no other command needs it
        print(f"afterwit: {error}", file=sys.stderr)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    """Serve a Hugging Face model to agents, and train it on what happens after each answer.

    afterwit serve Qwen/Qwen3-0.6B     # your model at http://127.0.0.1:8720/v1
    afterwit demo                      # or see a tiny one learn, in minutes
    afterwit COMMAND --help            # each with examples
    """
    if version:
        from afterwit import __version__

        print(__version__)
        raise typer.Exit


@cache
def command() -> Callable[[Sequence[str]], object]:
    """All commands as one, which takes a while to make."""
    return get_command(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, the process's by default.

    Our own errors and those of the machine are one line without a traceback.
    """
    try:
        words = sys.argv[1:] if arguments is None else arguments
        for word in words:
            if not word.isascii() and any("\ud800" <= character <= "\udfff" for character in word):
                raise SettingError(f"the argument {word!a} is not UTF-8")
        command()(words)
    except (AfterwitError, ModuleNotFoundError, OSError) as error:
        message = _message(error)
        if message is None:
            raise
        from afterwit.printing.terminal import plain

        print(f"afterwit: {plain(message)}", file=sys.stderr)
        raise SystemExit(2) from None


def _message(error: Exception) -> str | None:
    """One line for people; None if only a traceback explains the error."""
    if isinstance(error, AfterwitError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}" if error.errno in REFUSED else None
    missing = getattr(error, "name", None)
    for extra, needs in EXTRAS.items():
        if missing in needs:
            remedy = (
                f"install afterwit with its extra {extra}, in a clone with"
                f" {sys.executable} -m pip install '.[{extra}]'"
            )
            return f"this needs {missing}: {remedy}"
    return None
