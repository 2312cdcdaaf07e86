"""`rollback` and `requeue`: take learning back, and repeat it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from afterwit.apps.cli.options import Home, choice


def rollback(
    version: Annotated[int, typer.Argument(help="The version to return to; 0 is the model as it came.")],
    adapter: Annotated[
        str | None,
        typer.Option(help="Whose learning is taken back. Default: the version's; of version 0, `shared`."),
    ] = None,
    home: Home = None,
) -> None:
    """Take learning back: publish a new version with an old one's weights and optimiser state.

    The turns trained since are marked reverted and never train again by themselves. A running `serve` picks
    the new version up within a second.
    """
    from afterwit.apps.build import store_of_home, versions_of
    from afterwit.apps.config import home_of, load
    from afterwit.apps.model import model_folder
    from afterwit.checkpoints import roll_back
    from afterwit.core.adapters import SHARED

    folder = home_of(home)
    settings = load(home=folder)
    versions = versions_of(folder, model_folder(settings.model, folder), settings.versions)
    with store_of_home(home) as store:
        made = roll_back(versions.of(adapter), version, now=time.time())
        store.commit_version(made, now=time.time())
    taken = ", ".join(map(str, made.reverts)) or "none"
    whose = "" if made.adapter == SHARED else f" of {made.adapter}"
    print(f"version {made.number}{whose} has the weights of version {version}; updates taken back: {taken}")


def requeue(
    turns: Annotated[list[str] | None, typer.Argument(help="Turn ids; none: every turn that failed.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only turns skipped for this reason.")] = None,
    home: Home = None,
) -> None:
    """Put failed turns back where their step failed."""
    from afterwit.apps.build import store_of_home
    from afterwit.core.lifecycle import Reason

    why = choice(Reason, reason, "--reason")
    with store_of_home(home) as store:
        count = store.requeue(turns or None, reason=why, now=time.time())
    print(f"{count} turn{'s' if count != 1 else ''} put back")
