"""`python -m experiments.replay`: replay sessions of known truth, and print how they were bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from experiments.replay.captures import RECORDED, captured, captures
from experiments.replay.clients.field import FIELD
from experiments.replay.clients.known import KNOWN
from experiments.replay.clients.session import session
from experiments.replay.clients.unseen import UNSEEN
from experiments.replay.hosts.binder import BinderHost
from experiments.replay.hosts.gateway import gateway_host
from experiments.replay.hosts.port import Host
from experiments.replay.identified import Ids, identified
from experiments.replay.schedule import Played, play
from experiments.replay.score import Mistake, Score, score
from experiments.replay.traffic import Play
from tests.store.databases import store_in_memory

AT_ONCE = 6
"""Sessions that take turns when they are interleaved."""


class Who(StrEnum):
    RECORDED = "recorded"
    KNOWN = "known"
    UNSEEN = "unseen"
    FIELD = "field"


class Mode(StrEnum):
    ALONE = "alone"
    INTERLEAVED = "interleaved"
    TWINS = "twins"
    TOGETHER = "together"
    """All clients of a kind, interleaved, under one User-Agent, as SDKs of one name are."""


class Where(StrEnum):
    BINDER = "binder"
    """The binder over a store, without HTTP: fast."""
    GATEWAY = "gateway"
    """The real gateway on a socket, in front of an engine that follows a script."""


CLIENTS = {Who.KNOWN: KNOWN, Who.UNSEEN: UNSEEN, Who.FIELD: FIELD}
Named = tuple[str, Play]
"""A play and the kind of its client."""


def main(
    who: Annotated[list[Who] | None, typer.Option(help="Kinds of clients; default: all.")] = None,
    only: Annotated[str | None, typer.Option(help="One client or capture, by its name.")] = None,
    modes: Annotated[list[Mode] | None, typer.Option("--mode", help="Default: all.")] = None,
    host: Annotated[Where, typer.Option(help="What answers.")] = Where.BINDER,
    ids: Annotated[
        Ids, typer.Option(help="Session ids: the client's own, on every request, none.")
    ] = Ids.OWN,
    recorded: Annotated[Path, typer.Option("--captures", help="Folder of captures.")] = RECORDED,
    sessions: Annotated[int, typer.Option(help="Sessions of each client and mode.")] = 40,
    seed: Annotated[int, typer.Option(help="The first session's.")] = 0,
    mistakes: Annotated[int, typer.Option(help="How many mistakes to print.")] = 0,
) -> None:
    """Play every client in every mode, and print a confusion table for each."""
    console = Console(width=170)
    for group in who or list(Who):
        for mode in modes or list(Mode):
            together = list(_groups(group, mode, recorded, only, range(seed, seed + sessions)))
            scores, found = asyncio.run(_played(together, mode, host, ids, seed))
            console.print(table(scores, f"{group} clients, {mode}, {host}, ids: {ids}"))
            for mistake in found[:mistakes]:
                console.print(mistake, highlight=False, markup=False)


def _groups(group: Who, mode: Mode, folder: Path, only: str | None, seeds: range) -> list[list[Named]]:
    """The plays of each store: one for each kind of client; captures are interleaved with each other."""
    copies = range(2 if mode is Mode.TWINS else 1)
    if group is Who.RECORDED:
        every = [one for one in captures(folder) if only in (None, one.name)]
        each = [[(one.name, captured(one, copy=copy)) for copy in copies] for one in every]
        return (
            [[pair for pairs in each for pair in pairs]]
            if mode in (Mode.INTERLEAVED, Mode.TOGETHER)
            else each
        )
    traits = [one for one in CLIENTS[group] if only in (None, one.name)]
    if mode is Mode.TOGETHER:
        alike = [replace(one, agent="shared/1.0") for one in traits]
        return [[(one.name, session(one, seed, key=f"{one.name}-{seed}")) for seed in seeds for one in alike]]
    return [
        [(one.name, session(one, seed, spoken=copy)) for seed in seeds for copy in copies] for one in traits
    ]


async def _played(
    together: Sequence[Sequence[Named]], mode: Mode, where: Where, ids: Ids, seed: int
) -> tuple[dict[str, Score], list[Mistake]]:
    """The plays of each group in a store of its own."""
    scores: dict[str, Score] = {}
    mistakes: list[Mistake] = []
    at_once = {Mode.ALONE: 1, Mode.TWINS: 2}.get(mode, AT_ONCE)
    for plays in together:
        named = [(name, identified(one, ids, str(at))) for at, (name, one) in enumerate(plays)]
        async with _hosted(where) as host:
            played: list[Played] = await play(host, named, at_once=at_once, rng=Random(seed))
            counted, wrong = score(played, await host.records())
        scores |= counted
        mistakes += wrong
    return scores, mistakes


@asynccontextmanager
async def _hosted(where: Where) -> AsyncIterator[Host]:
    if where is Where.BINDER:
        yield BinderHost(store_in_memory())
        return
    with TemporaryDirectory() as folder:
        async with gateway_host(Path(folder)) as host:
            yield host


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
