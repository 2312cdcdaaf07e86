"""The commands for maintenance: `import`, `export`, `backup`, `restore`, `du`, `merge`, `keys`, `store`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from afterwit.cli.help import Command, Group
from afterwit.cli.options import (
    Config,
    Home,
    Json,
    LearnedIn,
    OfSession,
    Set,
    choice,
    loaded,
    named,
    private,
    store_of,
)

if TYPE_CHECKING:
    from afterwit.checkpoints.versions import Versions
    from afterwit.config import Settings
    from afterwit.importing.importing import Imported
    from afterwit.printing.terminal import Working
    from afterwit.store import Filter, Store

keys_app = typer.Typer(
    help="Manage API keys and their scopes. Without a key only this machine may call.",
    no_args_is_help=True,
    cls=Group,
)
store_app = typer.Typer(
    help="The store of turns: a file of the home, or PostgreSQL.", no_args_is_help=True, cls=Group
)

SHOWN = 20
HEAD = 1024
"""Bytes of a file that show whether it is text."""
WRITING, IMPORTING = "writing rows", "importing KiB"
WHOLE = "turns"
"""The format of everything that is stored of all turns."""
NO_KEY = "there is no key: this machine may call without one, and no other machine may call"
ADAPTER = "gguf-adapter"
"""The format of a version's adapter, in place of turns."""


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write; an older one is replaced.")],
    home: Home = None,
) -> None:
    """Copy the home into one file, while everything runs: turns, keys, versions, config.toml.

    The model's own weights are not in it. Conversations are: only you may read the file.

        afterwit backup afterwit.tar
    """
    from afterwit.config import home_of
    from afterwit.home.backup import back_up
    from afterwit.printing.terminal import working
    from afterwit.text import counted, size_in_words

    folder = home_of(home)
    with store_of(home) as store, working("copying the turns") as line:
        whole = back_up(folder, store, file, now=time.time(), progress=line.step)
    print(
        f"{file}: {size_in_words(file.stat().st_size)}, {counted(len(whole), 'version')}, "
        f"{sum(whole)} with weights; the model itself is not in it"
    )


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `afterwit backup` wrote.")],
    yes: Annotated[bool, typer.Option("--yes", help="Use its config.toml without asking.")] = False,
    home: Home = None,
) -> None:
    """Make a home from a backup. Refuses a home that is in use or not empty.

    afterwit restore afterwit.tar --home restored
    """
    from afterwit.config import home_of, section_of_home
    from afterwit.home.backup import restore_home
    from afterwit.home.home import CONFIG, remembered_model
    from afterwit.printing.terminal import moment, working

    folder = home_of(home)
    with working("unpacking it and comparing every file with its hash"):
        header = restore_home(file, folder)
    print(f"{folder} is as it was at {moment(header.created)}")
    if not yes:
        _accept_settings(folder / CONFIG)
    if section_of_home(folder, "store").store.url is not None:
        print("its turns are in its store.db, but its config.toml names a store.url, which was not changed:")
        print("take that line out, or copy them with `afterwit store copy URL --from home`")
    model = remembered_model(folder)
    if model is not None and not Path(model).exists():
        print(f"its model was {model}, which is not here: name it once, `afterwit serve MODEL`")


def _accept_settings(config: Path) -> None:
    """Ask for the settings of a backup: they may name a program that `up` starts, or a judge elsewhere that
    gets conversations. Refused, or without a terminal to ask at, they stay in a file that is not read."""
    from afterwit.printing.terminal import plain

    if not config.exists() or not (text := config.read_text(errors="replace")).strip():
        return
    aside = config.with_name("config.toml.restored")
    config.rename(aside)  # a question that is never answered is a refusal
    print(f"its config.toml:\n{plain(text)}")
    if sys.stdin.isatty() and typer.confirm("Are these settings yours?", default=False):
        aside.rename(config)
    else:
        print(
            f"these settings are not used: they are in {aside}; rename it to {config.name} if they are yours"
        )


def du(json_: Json = False, home: Home = None) -> None:
    """Show what takes space in the home, and what can be deleted.

    afterwit du
    """
    from afterwit.home.usage import print_usage

    print_usage(home, json=json_)


def merge(
    out: Annotated[Path, typer.Argument(help="The folder to make; with --gguf, the file.")],
    version: Annotated[
        int | None, typer.Option(help="A version's number. Default: the served version.")
    ] = None,
    gguf: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Write one file for llama.cpp: f32, f16, bf16 or q8_0."),
    ] = None,
    home: Home = None,
) -> None:
    """Write a version as an ordinary Hugging Face folder, its adapter merged into the model's weights.

    With --gguf it becomes one file for llama.cpp, Ollama and LM Studio.

        afterwit merge my-model
        afterwit merge my-model.gguf --gguf q8_0
    """
    from afterwit.printing.terminal import working

    versions, number = _version(home, version)
    with working(f"merging version {number} into the model's weights"):
        from afterwit.home.merge import write_merged  # it imports torch

        write_merged(versions, number, out, gguf)
    those = "transformers, vLLM and others load" if gguf is None else "llama.cpp, Ollama and LM Studio load"
    print(f"{out} has the weights of version {number}: {those} it as any model")


def _version(home: Path | None, version: int | None) -> tuple[Versions, int]:
    """The home's versions and a version's number. The default is the served one, or a later rollback or
    forgetting: these hold at once, even if no gateway has served them yet."""
    from afterwit.build import versions_of
    from afterwit.home.model import model_folder
    from afterwit.turn import SHARED
    from afterwit.version import Origin

    settings, folder = loaded(home)
    if version is None:
        with store_of(home) as store:
            back = [
                row.number for row in store.versions(SHARED) if row.origin in (Origin.ROLLBACK, Origin.REPLAY)
            ]
            version = max(store.latest_published(), *back, 0)
    versions = versions_of(folder, model_folder(settings.model, folder), settings.versions)
    versions.follow()
    return versions, version


@store_app.callback()
def store() -> None:
    """The store of turns: a file of the home, or PostgreSQL."""


@store_app.command(cls=Command)
def copy(
    to: Annotated[
        str, typer.Argument(help="postgresql://user@host/database, sqlite:/a/file, or home: its store.db.")
    ],
    source: Annotated[
        str | None, typer.Option("--from", help="As TO. Default: the store that the home uses.")
    ] = None,
    home: Home = None,
) -> None:
    """Copy all turns, verdicts, versions and keys into another, empty store. Nothing may run meanwhile.

    The store that was copied stays as it is. Afterwards name the other one as store.url in config.toml.

        afterwit store copy postgresql://me@db.example/afterwit
        afterwit store copy home --from postgresql://me@db.example/afterwit
    """
    from afterwit.config import home_of, section_of_home
    from afterwit.home.backup import HOME, copy_store
    from afterwit.home.home import CONFIG

    folder = home_of(home)
    turns = copy_store(folder, section_of_home(folder, "store").store.url, source=source, target=to)
    then = "leave store.url out of" if to == HOME else "set store.url to it in"
    print(f"{turns} turns are copied; to use the copy, {then} {folder / CONFIG}")


def import_(
    file: Annotated[
        Path, typer.Argument(help='JSONL: `{"messages": [...]}` a line, or records of OpenClaw-RL.')
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be imported, and store nothing.")
    ] = False,
    judge: Annotated[bool, typer.Option(help="Let `serve` judge the turns with a next state.")] = True,
    practise: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Practise the corrections, as lessons of this key (without keys: `local`)."
        ),
    ] = None,
    home: Home = None,
) -> None:
    """Import conversations recorded elsewhere: they are judged, shown and exported, never trained on.

    Conversations of an earlier import are skipped. A bad line is reported and left out; the exit status is
    then 1.

        afterwit import conversations.jsonl --dry-run
        afterwit import conversations.jsonl
        afterwit import conversations.jsonl --practise local
    """
    from afterwit.errors import SettingError
    from afterwit.importing.importing import import_lines
    from afterwit.printing.terminal import working

    if practise is not None and not judge:
        raise SettingError("--practise needs the judge, which reads what was corrected: leave out --no-judge")
    with _text(file) as text, _store_to_fill(home, dry_run=dry_run) as store, working(IMPORTING) as line:
        if practise is not None and practise not in (names := _keys(store)):
            raise SettingError(f"--practise {practise}: there is no such key, but {', '.join(names)}")
        done = import_lines(
            _counted(text, file.stat().st_size, line),
            store,
            judge=judge,
            dry_run=dry_run,
            now=time.time,
            practise=practise,
        )
    _print_imported(done, dry_run=dry_run)
    if done.bad:
        raise typer.Exit(1)


@contextmanager
def _store_to_fill(home: Path | None, *, dry_run: bool) -> Iterator[Store | None]:
    """The home's store, made if missing; for a dry run None in its place."""
    from afterwit.config import home_of, section_of_home
    from afterwit.home.home import store_url
    from afterwit.store import store_exists

    folder = home_of(home)
    if dry_run and not store_exists(store_url(folder, section_of_home(folder, "store").store.url)):
        yield None
        return
    with store_of(home, make=not dry_run) as store:
        yield store


def _counted(lines: Iterable[bytes], size: int, line: Working) -> Iterator[bytes]:
    """The same lines, of a file of `size` bytes; `line` shows how much is done."""
    read = 0
    for each in lines:
        line.step(IMPORTING, read >> 10, size >> 10)
        yield each
        read += len(each)


def _text(file: Path) -> BufferedReader:
    """The opened file. SettingError if it cannot be read, or is not text."""
    from afterwit.errors import SettingError

    try:
        opened = file.open("rb")
        if b"\0" not in opened.peek(HEAD)[:HEAD]:
            return opened
        opened.close()
    except OSError as error:
        raise SettingError(f"{file} cannot be read: {error.strerror}") from error
    raise SettingError(f"{file} is not text in UTF-8: if it is packed, unpack it first")


def _print_imported(done: Imported, *, dry_run: bool) -> None:
    from afterwit.text import counted

    for bad in done.bad[:SHOWN]:
        print(f"line {bad.number}: {bad.reason}", file=sys.stderr)
    if len(done.bad) > SHOWN:
        print(f"... and {len(done.bad) - SHOWN} more", file=sys.stderr)
    would = "would be " if dry_run else ""
    known = f"; {done.known} {'was' if done.known == 1 else 'were'} there already" if done.known else ""
    left = f"; {counted(len(done.bad), 'line')} left out" if done.bad else ""
    found = f"{counted(done.turns, 'turn')} of {counted(done.conversations, 'conversation')}"
    print(f"{found} {would}imported{known}{left}")


def _keys(store: Store | None) -> list[str]:
    """Who may teach: the keys, or the caller from this machine while there are none."""
    keys = () if store is None else store.keys()
    return [key.name for key in keys if key.revoked is None] or ["local"]


def export(
    file: Annotated[Path | None, typer.Argument(help="A JSONL file; none: standard output.")] = None,
    out: Annotated[Path | None, typer.Option(help="The same file, as an option.")] = None,
    format: Annotated[
        str,
        typer.Option(
            help="turns: everything that is stored. Training data: trl, verl, openpipe, sft, dpo, atropos. "
            "gguf-adapter: no turns, but a version's adapter for llama.cpp."
        ),
    ] = WHOLE,
    state: Annotated[str | None, typer.Option(help="Only turns in this state.")] = None,
    session: OfSession = None,
    version: LearnedIn = None,
    home: Home = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Write turns as JSON lines: everything stored, or training data for another program.

    It prints how many rows it wrote, and how many turns it left out for each reason. The adapter is that of
    --version, or of the version that is served.

        afterwit export turns.jsonl
        afterwit export pairs.jsonl --format dpo
        afterwit export adapter.gguf --format gguf-adapter
    """
    from afterwit.config import load
    from afterwit.lifecycle import State
    from afterwit.printing.names import session_named
    from afterwit.printing.terminal import working
    from afterwit.store import Filter

    where = Filter(state=choice(State, state, "--state"), session=session, version=version)
    settings = partial(load, home=home, file=config, pairs=set_ or ())
    path = _destination(format, file, out)
    if format == ADAPTER and path is not None:
        _write_adapter(path, home, version)
        return
    with (
        store_of(home) as store,
        nullcontext(sys.stdout.buffer) if path is None else private(path) as stream,
        nullcontext() if path is None and sys.stdout.isatty() else working(WRITING) as line,
    ):
        if session is not None:
            where = replace(where, session=session_named(store, session))
        written = _write(store, where, stream, format, settings, line)
        stream.flush()
    print(written, file=sys.stderr)


def _destination(format: str, file: Path | None, out: Path | None) -> Path | None:
    """The file to write; None: standard output. SettingError for an unknown format, or if two files or none
    are named."""
    from afterwit.errors import SettingError
    from afterwit.exporting.formats import FORMATS

    if format not in (known := (WHOLE, *FORMATS, ADAPTER)):
        raise SettingError(f"--format {format}: it must be one of {', '.join(known)}")
    if file and out and file != out:
        raise SettingError(f"two files are named, {file} and --out {out}: name one")
    if format == ADAPTER and not (file or out):
        raise SettingError(f"--format {ADAPTER} writes a file: name it")
    return file or out


def _write_adapter(path: Path, home: Path | None, version: int | None) -> None:
    from afterwit.printing.terminal import working

    versions, number = _version(home, version)
    with working(f"writing the adapter of version {number}"):
        from afterwit.home.merge import write_gguf_adapter  # it imports torch

        write_gguf_adapter(versions, number, path)
    print(f"{path} has the adapter of version {number}, over {versions.base}", file=sys.stderr)


def _write(
    store: Store,
    where: Filter,
    stream: BinaryIO,
    format: str,
    settings: Callable[[], Settings],
    line: Working | None,
) -> str:
    """Write the turns, and return what was written in a sentence; `line` shows the rows so far."""
    import orjson

    from afterwit.exporting.examples import Examples
    from afterwit.exporting.formats import WITH_IDS, write
    from afterwit.store import whole
    from afterwit.text import one_line

    def wrote(rows: int) -> None:
        if line is not None:
            line.step(WRITING, rows)

    if format == WHOLE:
        count = 0
        for record in store.turns(where):
            stream.write(one_line(orjson.dumps(whole(record))) + b"\n")
            count += 1
            wrote(count)
        return f"{count} turns written"
    own = settings()
    examples = Examples(
        store=store,
        where=where,
        objective=own.objective,
        placement=own.judge.placement,
        redaction=own.redaction,
        with_ids=format in WITH_IDS,
    )
    return str(write(examples, format, stream, wrote))


@keys_app.command(cls=Command)
def add(
    name: Annotated[str, typer.Argument(help="The key's name, by which you recognise it.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="chat: call the model. teach: its turns may train. reward: its feedback may be a reward. "
            "read: health, metrics, and on the page all conversations. admin: everything, and orders. "
            "Repeatable. Default: chat and teach."
        ),
    ] = None,
    home: Home = None,
) -> None:
    """Make a key and print it once; only its hash is stored.

    afterwit keys add laptop
    afterwit keys add me --scope read --scope admin
    """
    from afterwit.gateway.auth import Permission, check_name, hash_key, new_key

    scopes = {named(Permission, one, "--scope") for one in scope or ("chat", "teach")}
    check_name(name)
    key = new_key()
    with store_of(home, make=True) as store:
        first = all(old.revoked is not None for old in store.keys())  # noqa: SIM118 - API keys, not a mapping's
        store.add_key(name, scopes, hash_key(key), now=time.time())
    print(key)
    if first:
        print(
            "from now on every caller needs a key: agents without a valid one get 401",
            file=sys.stderr,
        )


@keys_app.command("list", cls=Command)
def list_keys(home: Home = None) -> None:
    """Show the keys' names and scopes.

    afterwit keys list
    """
    from rich.table import Table

    from afterwit.printing.terminal import Terminal, moment

    table = Table("name", "scopes", "made", "revoked", box=None, pad_edge=False)
    with store_of(home) as store:
        keys = store.keys()
    for key in keys:
        table.add_row(key.name, ", ".join(sorted(key.scopes)), moment(key.created), moment(key.revoked))
    Terminal().print(table if keys else NO_KEY)


@keys_app.command(cls=Command)
def revoke(name: Annotated[str, typer.Argument(help="The key's name.")], home: Home = None) -> None:
    """Refuse a key from now on.

    afterwit keys revoke laptop
    """
    with store_of(home) as store:
        store.revoke_key(name, now=time.time())
        print(f"the key {name!r} is refused from now on")
        if all(key.revoked is not None for key in store.keys()):  # noqa: SIM118 - API keys, not a mapping's
            print("No key is left: this machine may now call without one, and no other machine may call.")


@keys_app.command(cls=Command)
def rotate(name: Annotated[str, typer.Argument(help="The key's name.")], home: Home = None) -> None:
    """Replace a key by a new one with the same name and scopes, and print it once.

    The old one is refused. Sessions belong to the name, so they go on.

        afterwit keys rotate laptop
    """
    from afterwit.errors import SettingError
    from afterwit.gateway.auth import hash_key, new_key

    key = new_key()
    with store_of(home) as store, store.transaction():
        old = next((old for old in store.keys() if old.name == name), None)  # noqa: SIM118 - as above
        if old is None:
            raise SettingError(f"there is no key {name!r}")
        if old.revoked is not None:
            raise SettingError(f"the key {name!r} is revoked: `afterwit keys add {name}` makes a new one")
        now = time.time()
        store.revoke_key(name, now=now)
        store.add_key(name, old.scopes, hash_key(key), now=now)
    print(key)
