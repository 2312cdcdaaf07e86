"""A disk that is full: said in plain words, nothing acknowledged is lost, and writing goes on with room."""

from __future__ import annotations

import asyncio
from pathlib import Path

from afterwit.core.errors import StoreError
from afterwit.store import AsyncStore
from afterwit.store.sqlite import SqliteStore
from afterwit.store.sqlite.database import Database
from afterwit.store.sqlite.opening import connect
from tests.store.examples import add


async def test_on_a_full_disk_no_call_is_told_of_success_that_is_not_stored(path: Path) -> None:
    SqliteStore.open(path, fingerprint="model").close()
    database = Database(connect(path, "NORMAL"), path)
    astore = AsyncStore(SqliteStore(database))
    pages = await astore.call(lambda _: database.rows("PRAGMA page_count")[0][0])
    await astore.call(lambda _: database.rows(f"PRAGMA max_page_count = {pages + 20}"))
    outcomes = await asyncio.gather(
        *(astore.call(lambda s, n=n: add(s, f"t{n}")) for n in range(200)), return_exceptions=True
    )
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert errors
    assert {type(error) for error in errors} == {StoreError}
    stored = await astore.call(lambda s: {record.turn.id for record in s.turns()})
    assert stored == {f"t{n}" for n, outcome in enumerate(outcomes) if outcome not in errors}
    await astore.call(lambda _: database.rows(f"PRAGMA max_page_count = {pages + 2000}"))
    await astore.call(lambda s: add(s, "afterwards"))
    await astore.close()
