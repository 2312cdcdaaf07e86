"""Options that several commands share."""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

import typer

from afterwit import recipes
from afterwit.errors import SettingError

Member = TypeVar("Member", bound=StrEnum)


Model = Annotated[
    str | None,
    typer.Argument(help="A Hugging Face model folder or hub id. Default: the model of the home."),
]


ModelOption = Annotated[str | None, typer.Option("--model", help="Another way to name MODEL.")]


Home = Annotated[
    Path | None,
    typer.Option(
        help="Folder of store, versions and config.toml. Default: AFTERWIT_HOME, else the user's data folder."
    ),
]


Config = Annotated[Path | None, typer.Option(help="A TOML file in place of HOME/config.toml.")]


Recipe = Annotated[
    str | None,
    typer.Option(help=f"A published recipe, which your own settings override: {', '.join(recipes.every())}."),
]


Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Override one setting; may be given again."),
]


Engine = Annotated[
    str | None, typer.Option(help="Which engine samples: embedded, vllm or sglang. Default: embedded.")
]


EngineUrl = Annotated[
    list[str] | None,
    typer.Option(
        help="Where the engine's server answers, such as http://127.0.0.1:8000; may be given again, for "
        "several servers of one model."
    ),
]


RecordOnly = Annotated[
    bool,
    typer.Option(
        "--record-only",
        help="Judge nothing and train nothing: short for judge.enabled and learner.enabled = false.",
    ),
]


LearnerProcesses = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that share the learning, one for each GPU. Default: 1."),
]


Adapter = Annotated[
    str | None,
    typer.Option(help="Of this adapter alone: `shared`, `key:NAME`, or `group:NAME/GROUP`."),
]


LearnedIn = Annotated[
    int | None,
    typer.Option("--version", min=0, max=2**63 - 1, help="Only turns that this version learned from."),
]


Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]


def chosen_model(argument: str | None, option: str | None) -> str | None:
    """The model that is named; SettingError if two are."""
    if argument and option and argument != option:
        raise SettingError(f"two models are named, {argument} and --model {option}: name one")
    return argument or option


def addresses(urls: list[str] | None) -> str | list[str] | None:
    """The setting `engine.url` that `--engine-url` stands for."""
    return urls[0] if urls and len(urls) == 1 else urls or None


def switched_off(record_only: bool) -> dict[str, bool | None]:
    """The settings that `--record-only` is short for; None: not given."""
    return dict.fromkeys(("judge.enabled", "learner.enabled"), False if record_only else None)


def private(path: Path) -> BinaryIO:
    """A file, or a pipe, to write; only its owner may read a file, because it holds conversations."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            os.fchmod(handle, 0o600)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror}") from error
    return os.fdopen(handle, "wb")


def choice(kind: type[Member], value: str | None, flag: str) -> Member | None:
    """The member that `value` names; None if it is None."""
    return None if value is None else named(kind, value, flag)


def named(kind: type[Member], value: str, flag: str) -> Member:
    """The member that `value` names in any case; SettingError that lists all members."""
    for member in kind:
        if member.value.lower() == value.lower():
            return member
    raise SettingError(f"{flag} {value}: it must be one of {', '.join(kind)}")
