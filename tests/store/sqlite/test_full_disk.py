"""A full disk: the error is in plain words, acknowledged turns are kept, and writing goes on with room."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from afterwit.errors import StoreUnavailable
from afterwit.store import AsyncStore, Store
from afterwit.store.sqlite import SqliteDatabase, SqliteStore, connect
from afterwit.turn import Conversation, Message
from tests.store.examples import add

LONG = Conversation(messages=(Message(role="user", content="x" * 200_000),))


async def test_on_a_full_disk_no_call_is_told_of_success_that_is_not_stored(path: Path) -> None:
    SqliteStore.open(path, fingerprint="model").close()
    database = SqliteDatabase(connect(path, "NORMAL"), path)
    astore = AsyncStore(SqliteStore(database))
    pages = await astore.call(lambda _: database.rows("PRAGMA page_count")[0][0])
    await astore.call(lambda _: database.rows(f"PRAGMA max_page_count = {pages + 20}"))
    outcomes = await asyncio.gather(
        *(astore.call(lambda s, n=n: add(s, f"t{n}")) for n in range(200)), return_exceptions=True
    )
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert errors
    assert {type(error) for error in errors} == {StoreUnavailable}
    stored = await astore.call(lambda s: {record.turn.id for record in s.turns()})
    assert stored == {f"t{n}" for n, outcome in enumerate(outcomes) if outcome not in errors}
    await astore.call(lambda _: database.rows(f"PRAGMA max_page_count = {pages + 2000}"))
    await astore.call(lambda s: add(s, "afterwards"))
    await astore.close()


async def test_on_a_full_disk_a_stored_turn_is_never_said_to_be_missing(path: Path) -> None:
    SqliteStore.open(path, fingerprint="model").close()
    database = SqliteDatabase(connect(path, "NORMAL"), path)
    astore = AsyncStore(SqliteStore(database))
    await astore.call(lambda s: add(s, "stored"))
    await astore.call(lambda _: database.rows("PRAGMA max_page_count = 1"))
    started, blocked = threading.Event(), threading.Event()
    first = asyncio.ensure_future(astore.call(lambda _: (started.set(), blocked.wait())))
    await asyncio.to_thread(started.wait)  # the rest then waits together
    works: list[Callable[[Store], object]] = [lambda s: add(s, "large", conversation=LONG)]
    works += [lambda s: s.turn("stored").turn.id] * 3
    rest = [asyncio.ensure_future(astore.call(work)) for work in works]
    await asyncio.sleep(0)
    blocked.set()
    outcomes = await asyncio.gather(*rest, return_exceptions=True)
    await first
    assert "Free some disk space" in str(outcomes[0])
    assert outcomes[1:] == ["stored"] * 3
    assert await astore.call(lambda s: s.turn("stored").turn.id) == "stored"
    await astore.close()
