"""`afterwit forget` next to a real `serve` that is killed again and again: done in the end, never half."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from afterwit.checkpoints.versions import Versions
from afterwit.errors import TurnNotFound
from afterwit.store.sqlite import SqliteStore
from afterwit.version import tainted
from tests.journey.test_kill import Server, free_port, talk

KILLS = 3


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_session_is_forgotten_though_serve_is_killed_meanwhile(model: Path, tmp_path: Path) -> None:
    chance, port, rank = random.Random(11), free_port(), 4
    acknowledged: list[str] = []
    await learned(Server(model, tmp_path, port, rank), tmp_path, acknowledged)
    store = SqliteStore.open(tmp_path / "store.db", fingerprint=None)
    gone = next(learned.turn for learned in store.learned() if learned.version == 1)
    session = store.turn(gone).turn.session
    said = store.turn(gone).turn.conversation.messages[-1].content
    assert said is not None
    assert said.encode() in bytes_of(tmp_path)
    store.order_forgetting(session, replay=True, now=time.time())
    store.close()
    versions = Versions(root=tmp_path / "versions", base=model)
    for _ in range(KILLS):
        server = Server(model, tmp_path, port, rank)
        try:
            await server.ready()
            await asyncio.sleep(chance.uniform(0.0, 2.0))
        finally:
            server.kill()
        assert never_half(versions, tmp_path, gone)
    server = Server(model, tmp_path, port, rank)
    try:
        await server.ready()
        await until(lambda: not pending(tmp_path))
    finally:
        server.kill()
    store = SqliteStore.open(tmp_path / "store.db", fingerprint=None)
    with pytest.raises(TurnNotFound):
        store.turn(gone)
    others = {turn for turn in acknowledged if store.turn_ids(session).count(turn) == 0}
    assert others <= {record.turn.id for record in store.turns()}
    store.close()
    assert not tainted(versions.all(), versions.has_weights, [gone])
    assert said.encode() not in bytes_of(tmp_path)


def never_half(versions: Versions, home: Path, gone: str) -> bool:
    """Either the order stands, or the text and every version that holds it are gone."""
    done = any(version.forgets for version in versions.all())
    store = SqliteStore.open(home / "store.db", fingerprint=None)
    try:
        there = any(record.turn.id == gone for record in store.turns())
        return bool(store.forget_orders()) if there else done
    finally:
        store.close()


def pending(home: Path) -> bool:
    store = SqliteStore.open(home / "store.db", fingerprint=None)
    try:
        return bool(store.forget_orders())
    finally:
        store.close()


def bytes_of(home: Path) -> bytes:
    return b"".join(file.read_bytes() for file in home.glob("store.db*"))


async def learned(server: Server, home: Path, acknowledged: list[str]) -> None:
    """Talk to the server until it has learned three versions."""
    try:
        await server.ready()
        talking = asyncio.create_task(talk(server.url, home, acknowledged, []))
        store = SqliteStore.open(home / "store.db", fingerprint=None)
        await until(lambda: sum(row.trained > 0 for row in store.versions()) >= 3)
        store.close()
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
    finally:
        server.kill()


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.2)
