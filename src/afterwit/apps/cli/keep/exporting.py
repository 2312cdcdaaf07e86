"""`afterwit export`: what was recorded, for other programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from afterwit.apps.cli.options import Config, Home, LearnedIn, Set, choice, private

if TYPE_CHECKING:
    from afterwit.store import Filter, Store

WHOLE = "turns"
"""The format of everything that is stored, whatever became of the turn."""


def export(
    file: Annotated[Path | None, typer.Argument(help="A JSONL file; none: standard output.")] = None,
    out: Annotated[Path | None, typer.Option(help="The same file, as an option.")] = None,
    format: Annotated[
        str,
        typer.Option(
            help="turns: everything that is stored. Training data: trl, verl, openpipe, sft, dpo, atropos."
        ),
    ] = WHOLE,
    state: Annotated[str | None, typer.Option(help="Only turns in this state.")] = None,
    session: Annotated[str | None, typer.Option(help="Only turns of this session.")] = None,
    version: LearnedIn = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Write turns as JSON lines: all that is known of each, or training data for another program.

    It says how many rows it wrote, and how many turns it left out for which reason.
    """
    from afterwit.apps.build import store_of_home
    from afterwit.core.errors import SettingError
    from afterwit.core.lifecycle import State
    from afterwit.store import Filter
    from afterwit.wire.export import FORMATS

    if format not in (WHOLE, *FORMATS):
        raise SettingError(f"--format {format}: it must be one of {', '.join((WHOLE, *FORMATS))}")
    if file and out and file != out:
        raise SettingError(f"two files are named, {file} and --out {out}: name one")
    where = Filter(state=choice(State, state, "--state"), session=session, version=version)
    with store_of_home(home) as store, _opened(file or out) as stream:
        if format == WHOLE:
            said = _write_whole(store, where, stream)
        else:
            said = _write_format(store, where, stream, format, home, config, set_)
    print(said, file=sys.stderr)


def _write_whole(store: Store, where: Filter, stream: BinaryIO) -> str:
    import orjson

    from afterwit.store.export import whole

    count = 0
    for record in store.turns(where):
        stream.write(orjson.dumps(whole(record)) + b"\n")
        count += 1
    return f"{count} turns written"


def _write_format(
    store: Store,
    where: Filter,
    stream: BinaryIO,
    format: str,
    home: Path | None,
    config: Path | None,
    pairs: list[str] | None,
) -> str:
    from afterwit.apps.config import home_of, load
    from afterwit.apps.exporting import Examples, write
    from afterwit.wire.export import WITH_IDS

    settings = load(home=home_of(home), file=config, pairs=pairs or ())
    examples = Examples(
        store=store,
        where=where,
        objective=settings.objective,
        placement=settings.judge.placement,
        redaction=settings.redaction,
        with_ids=format in WITH_IDS,
    )
    return str(write(examples, format, stream))


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    """A file of its owner's alone, or standard output."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with private(path) as stream:
            yield stream
