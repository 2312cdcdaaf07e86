"""The help of commands: text for a terminal of 80 columns, with examples.

typer's own panels need rich's parser of Markdown, which takes longer than all else of `--help`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

EXAMPLE = "afterwit "
"""The beginning of a docstring's examples, a block whose lines help keeps as they are."""


class WithExamples:
    """A command or a group whose docstring has examples."""

    help: str | None
    params: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _name_values(self.params)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        _write_help(self.help, formatter)


class Command(WithExamples, TyperCommand):
    """A command, with its options by kind."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for kind in ("argument", "option"):
            some = (param for param in self.get_params(ctx) if param.param_type_name == kind)
            rows = [record for param in some if (record := param.get_help_record(ctx)) is not None]
            if rows:
                with formatter.section(f"{kind.title()}s"):
                    formatter.write_dl([(name.partition(" <")[0], words) for name, words in rows])


class Group(WithExamples, TyperGroup):
    """A group that lists its commands by panel, each with the first paragraph of its help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            words = " ".join((command.help or "").partition("\n\n")[0].split())
            panels.setdefault(getattr(command, "rich_help_panel", None) or "Commands", []).append(
                (name, words)
            )
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


def _name_values(params: Iterable[Any]) -> None:
    """Name an option's value by the option's last word, in place of its type."""
    for param in params:
        name = (param.name or "").strip("_").upper()
        if param.metavar is None:
            param.metavar = name if param.param_type_name == "argument" else name.split("_")[-1]


def _write_help(words: str | None, formatter: Any) -> None:
    for block in (words or "").split("\n\n"):
        formatter.write_paragraph()
        if block.lstrip().startswith(EXAMPLE):
            formatter.write("".join(f"    {line.strip()}\n" for line in block.splitlines()))
            continue
        with formatter.indentation():
            formatter.write_text(block)
