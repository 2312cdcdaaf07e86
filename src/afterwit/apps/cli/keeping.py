"""`backup` and `restore`: a home in one file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from afterwit.apps.cli.options import Home


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
    from afterwit.apps.config import home_of
    from afterwit.apps.home import remembered_model
    from afterwit.apps.keeping.restore import restore as restored
    from afterwit.apps.tables import moment

    folder = home_of(home)
    header = restored(file, folder)
    print(f"{folder} is as it was at {moment(header.created)}")
    model = remembered_model(folder)
    if model is not None and not Path(model).exists():
        print(f"its model was {model}, which is not here: name it once, `afterwit serve MODEL`")
