"""`backup`, `restore`, `du`, `merge`: a home's copies, and what is in it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from afterwit.apps.cli.options import Home, Json


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write; an older one is replaced.")],
    home: Home = None,
) -> None:
    """Copy the home into one file, while everything runs: turns, keys, versions, config.toml.

    The model's own weights are not in it. Conversations are: only you may read the file.
    """
    from afterwit.apps.build import store_of_home
    from afterwit.apps.config import home_of
    from afterwit.apps.keeping.backup import back_up

    folder = home_of(home)
    with store_of_home(home) as store:
        copied = back_up(folder, store, file, now=time.time())
    print(
        f"{file}: {copied.size / 2**20:.1f} MiB, {copied.versions} versions, {copied.with_weights} of them "
        "with weights; the model itself is not in it"
    )


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `afterwit backup` wrote.")],
    home: Home = None,
) -> None:
    """Make a home from a backup. A home that holds anything, or that something runs over, is refused."""
    from afterwit.apps.config import home_of, store_settings
    from afterwit.apps.home import remembered_model
    from afterwit.apps.keeping.restore import restore as restored
    from afterwit.apps.printing.moments import moment

    folder = home_of(home)
    header = restored(file, folder)
    print(f"{folder} is as it was at {moment(header.created)}")
    if store_settings(folder).url is not None:
        print("its turns are in its store.db, but its config.toml names a store.url, which is as it was:")
        print("take that line out, or copy them with `afterwit store copy URL --from home`")
    model = remembered_model(folder)
    if model is not None and not Path(model).exists():
        print(f"its model was {model}, which is not here: name it once, `afterwit serve MODEL`")


def du(json_: Json = False, home: Home = None) -> None:
    """Show what takes room in the home, and what can go."""
    from dataclasses import asdict

    import orjson
    from rich.console import Console
    from rich.table import Table

    from afterwit.apps.build import store_of_home
    from afterwit.apps.config import home_of, load
    from afterwit.apps.keeping.usage import in_words, usage

    folder = home_of(home)
    with store_of_home(home) as store:
        found = usage(folder, store, load(home=folder))
    if json_:
        for one in found:
            sys.stdout.buffer.write(orjson.dumps(asdict(one)) + b"\n")
        return
    table = Table("what", "size", "can it go?", box=None, pad_edge=False)
    for one in found:
        table.add_row(one.name, in_words(one.bytes), one.words)
    table.add_row(
        str(folder),
        in_words(sum(one.bytes for one in found if not one.elsewhere)),
        "all together",
        style="bold",
    )
    Console().print(table)


def merge(
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    version: Annotated[
        int | None, typer.Option(help="Which version. Default: the one that is served.")
    ] = None,
    home: Home = None,
) -> None:
    """Write a version as an ordinary Hugging Face folder, its adapter merged into the model's weights."""
    from afterwit.apps.build import store_of_home, versions_of
    from afterwit.apps.config import home_of, load
    from afterwit.apps.keeping.merge import merge as merged
    from afterwit.apps.model import model_folder

    folder = home_of(home)
    settings = load(home=folder)
    versions = versions_of(folder, model_folder(settings.model, folder), settings.versions)
    versions.follow()
    with store_of_home(home) as store:
        number = store.latest_published() if version is None else version
    merged(versions, number, out)
    print(f"{out} has the weights of version {number}: transformers, vLLM and others load it as any model")
