"""Options that several commands share, and what every command does with them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeVar

import typer

from afterwit import recipes
from afterwit.errors import SettingError

if TYPE_CHECKING:
    from afterwit.config import Settings
    from afterwit.store import Store

Member = TypeVar("Member", bound=StrEnum)

Model = Annotated[
    str | None,
    typer.Argument(help="A Hugging Face model folder, hub id, or GGUF file. Default: the model of the home."),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="Another way to name MODEL.")
]
Home = Annotated[
    Path | None,
    typer.Option(
        help="Folder of store, versions and config.toml. Default: AFTERWIT_HOME, else the user's data folder."
    ),
]
Config = Annotated[Path | None, typer.Option(help="A TOML file in place of HOME/config.toml.")]
Recipe = Annotated[
    str | None,
    typer.Option(
        autocompletion=recipes.every,
        help=f"A published recipe, which your own settings override: {', '.join(recipes.every())}.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Override one setting; repeatable."),
]
Engine = Annotated[
    str | None,
    typer.Option(help="The engine that samples: embedded, vllm, sglang or llama_cpp. Default: embedded."),
]
EngineUrl = Annotated[
    list[str] | None,
    typer.Option(
        help="Address of the engine's server, such as http://127.0.0.1:8000; repeatable, for several servers "
        "of one model."
    ),
]
Host = Annotated[str | None, typer.Option(help="Address to listen on. Default 127.0.0.1.")]
Port = Annotated[int | None, typer.Option(help="Port to listen on. Default 8720.")]
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
    typer.Option(help="Only of this adapter: `shared`, `key:NAME`, or `group:NAME/GROUP`."),
]
LearnedIn = Annotated[
    int | None,
    typer.Option("--version", min=0, max=2**63 - 1, help="Only turns that this version learned from."),
]
LISTED = 20
"""Entries of a list, unless `--limit` asks for others."""
Limit = Annotated[
    int | None,
    typer.Option(min=0, help=f"Number that is listed, the newest ones; 0: all. {LISTED}, with --json all."),
]
OfSession = Annotated[
    str | None, typer.Option("--session", help="Only of this session: its id, a turn's, or `last`.")
]
SessionNamed = Annotated[str, typer.Argument(help="A session's id; or a turn's, for its session; or `last`.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]


def loaded(
    home: Path | None,
    config: Path | None = None,
    pairs: Sequence[str] | None = None,
    direct: Mapping[str, Any] | None = None,
    **more: Any,
) -> tuple[Settings, Path]:
    """The settings and the home's folder; see `config.load` for what there is `more`."""
    from afterwit.config import home_of, load

    folder = home_of(home)
    return load(home=folder, file=config, pairs=pairs or (), direct=direct, **more), folder


def store_of(home: Path | None, *, make: bool = False) -> AbstractContextManager[Store]:
    """`build.store_of_home`, imported when a command runs."""
    from afterwit.build import store_of_home

    return store_of_home(home, make=make)


def end_at_signals() -> None:
    """`terminal.end_at_signals`, for a command that loads a model or its libraries first of all."""
    from afterwit.printing.terminal import end_at_signals

    end_at_signals("stopped")


@contextmanager
def private(path: Path) -> Iterator[BinaryIO]:
    """A file, or a pipe, to write; a file is readable by its owner only, because it holds conversations, and
    is removed if the body fails. SettingError if it cannot be written."""
    from afterwit.home.home import writing

    with writing(path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        if is_file := stat.S_ISREG(os.fstat(handle).st_mode):
            os.fchmod(handle, 0o600)
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
        except BaseException:
            if is_file:
                with suppress(OSError):
                    path.resolve().unlink()
            raise


def choice(kind: type[Member], value: str | None, flag: str) -> Member | None:
    return None if value is None else named(kind, value, flag)


def named(kind: type[Member], value: str, flag: str) -> Member:
    """The member of that value, in any case of letters. SettingError lists all members."""
    for member in kind:
        if member.value.lower() == value.lower():
            return member
    raise SettingError(f"{flag} {value}: it must be one of {', '.join(kind)}")


def listed(limit: int | None, *, json: bool) -> int:
    """How many entries of a list to print; 0: all, which programs get unless they ask for fewer."""
    if limit is not None:
        return limit
    return 0 if json else LISTED
