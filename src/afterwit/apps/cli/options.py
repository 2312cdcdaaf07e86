"""Options that several commands share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

Home = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the store, the versions and config.toml. Default: AFTERWIT_HOME, else the user's data folder."
    ),
]
Config = Annotated[Path | None, typer.Option(help="A TOML file in place of HOME/config.toml.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Override one setting; may be given again."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]


def moment(seconds: float | None) -> str:
    """A time for people; empty for None."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
