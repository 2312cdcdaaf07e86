"""Options that several commands share."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from afterwit import recipes
from afterwit.core.errors import SettingError

Home = Annotated[
    Path | None,
    typer.Option(
        help="Folder of store, versions and config.toml. Default: AFTERWIT_HOME, else the user's data folder."
    ),
]
Config = Annotated[Path | None, typer.Option(help="A TOML file in place of HOME/config.toml.")]
Recipe = Annotated[
    str | None,
    typer.Option(help=f"A published recipe beneath your settings: {', '.join(recipes.names())}."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Override one setting; may be given again."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]


def private(path: Path) -> BinaryIO:
    """A file, or a pipe, to write; a file is its owner's alone, for conversations stand in it."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            os.fchmod(handle, 0o600)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror}") from error
    return os.fdopen(handle, "wb")


def moment(seconds: float | None) -> str:
    """A time for people, without the date if it is today's; empty for None."""
    if seconds is None:
        return ""
    then = time.localtime(seconds)
    today = time.localtime()[:3] == then[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", then)
