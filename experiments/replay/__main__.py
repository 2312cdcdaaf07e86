"""`python -m experiments.replay`: replay sessions of known truth, and print what the binding made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from experiments.replay.clients.known import KNOWN
from experiments.replay.clients.session import session
from experiments.replay.clients.traits import Traits
from experiments.replay.clients.unseen import UNSEEN
from experiments.replay.hosts.binder import BinderHost
from experiments.replay.schedule import play
from experiments.replay.score import Mistake, Score, score
from experiments.replay.traffic import Play
from tests.store.databases import store_in_memory

AT_ONCE = 6
"""Sessions that take turns when they are interleaved."""


class Who(StrEnum):
    KNOWN = "known"
    UNSEEN = "unseen"


class Mode(StrEnum):
    ALONE = "alone"
    INTERLEAVED = "interleaved"
    TWINS = "twins"


CLIENTS = {Who.KNOWN: KNOWN, Who.UNSEEN: UNSEEN}


def main(
    who: Annotated[list[Who] | None, typer.Option(help="Kinds of clients; default: all.")] = None,
    only: Annotated[str | None, typer.Option(help="One client, by its name.")] = None,
    modes: Annotated[list[Mode] | None, typer.Option("--mode", help="Default: all.")] = None,
    sessions: Annotated[int, typer.Option(help="Sessions of each client and mode.")] = 40,
    seed: Annotated[int, typer.Option(help="The first session's.")] = 0,
    mistakes: Annotated[int, typer.Option(help="How many mistakes to print.")] = 0,
) -> None:
    """Play every client in every mode, and print a confusion table for each."""
    console = Console(width=170)
    for group in who or list(Who):
        traits = [one for one in CLIENTS[group] if only in (None, one.name)]
        for mode in modes or list(Mode):
            scores, found = _played(traits, mode, sessions, seed)
            console.print(table(scores, f"{group} clients, {mode}"))
            for mistake in found[:mistakes]:
                console.print(mistake, highlight=False, markup=False)


def _played(
    traits: Sequence[Traits], mode: Mode, sessions: int, seed: int
) -> tuple[dict[str, Score], list[Mistake]]:
    """Each client in a store of its own."""
    scores: dict[str, Score] = {}
    mistakes: list[Mistake] = []
    for one in traits:
        host = BinderHost(store_in_memory())
        plays = [(one.name, each) for number in range(sessions) for each in _plays(one, mode, seed + number)]
        at_once = {Mode.ALONE: 1, Mode.INTERLEAVED: AT_ONCE, Mode.TWINS: 2}[mode]
        played = asyncio.run(play(host, plays, at_once=at_once, rng=Random(seed)))
        counted, wrong = score(played, asyncio.run(host.records()))
        scores |= counted
        mistakes += wrong
    return scores, mistakes


def _plays(traits: Traits, mode: Mode, seed: int) -> list[Play]:
    copies = 2 if mode is Mode.TWINS else 1
    return [session(traits, seed, spoken=copy) for copy in range(copies)]


def table(scores: dict[str, Score], title: str) -> Table:
    """The confusion table: a row for each kind of client, and their sum."""
    made = Table(title=title, box=None, pad_edge=False, title_justify="left")
    for name in COLUMNS:
        made.add_column(name, justify="left" if name == "client" else "right", no_wrap=True)
    for name, counted in scores.items():
        made.add_row(name, *_row(counted))
    made.add_row("all", *_row(sum(scores.values(), Score())), style="bold")
    return made


COLUMNS = (
    "client",
    "sessions",
    "merged",
    "split",
    "main",
    "right",
    "parent wrong",
    "next missing",
    "next wrong",
    "as side",
    "ambiguous",
    "side",
    "known",
    "unknown",
    "trains",
)


def _row(counted: Score) -> list[str]:
    return [
        str(counted.sessions),
        str(counted.merged),
        str(counted.split),
        str(counted.main),
        _share(counted.right, counted.main),
        str(counted.parent_wrong),
        str(counted.next_missing),
        str(counted.next_wrong),
        str(counted.main_as_side),
        str(counted.ambiguous),
        str(counted.side),
        _share(counted.known, counted.side),
        str(counted.side_unknown),
        str(counted.side_trains),
    ]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


if __name__ == "__main__":
    typer.run(main)
