"""Options that several commands share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

Home = Annotated[
    Path | None,
    typer.Option(
        help="Folder of store, versions and config.toml. Default: AFTERWIT_HOME, else the user's data folder."
    ),
]
Config = Annotated[Path | None, typer.Option(help="A TOML file in place of HOME/config.toml.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Override one setting; may be given again."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]


def moment(seconds: float | None) -> str:
    """A time for people, without the date if it is today's; empty for None."""
    if seconds is None:
        return ""
    then = time.localtime(seconds)
    today = time.localtime()[:3] == then[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", then)
