"""The page over a store of 100,000 turns: the CPU time of each view's reading, and the first paint.

How long a paint takes depends on what else the machine does, so it is printed (`-s`), not judged.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from afterwit.chat_format.render import Renderer
from afterwit.page.app import VIEWS
from afterwit.store.browsing import SEARCHED
from afterwit.store.sqlite import SqliteStore
from tests.browser.history import play
from tests.gateway.serving import serving

pytestmark = [pytest.mark.browser, pytest.mark.slow]
TURNS = 100_000
REPEATS = 5
LONGEST_S = 0.100
COPIES = {
    "turns": ("id = id || '-' || :copy", "session = session || '-' || :copy"),
    "contents": (),
    "next_states": (),
    "verdicts": (),
    "votes": (),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, renderer: Renderer) -> Path:
    """A store with a history that is copied until it has enough turns."""
    made = tmp_path_factory.mktemp("large")
    store = SqliteStore.open(made / "store.db", fingerprint=None)
    play(store, renderer, sessions=400, now=1_700_000_000.0)
    database = store._db
    (count,) = database.rows("SELECT max(seq) FROM turns")[0]
    with store.transaction():
        for copy in range(1, TURNS // count + 1):
            for table, changes in COPIES.items():
                values = {"copy": copy, "shift": copy * count, "last": count}
                columns = [row["name"] for row in database.rows(f"PRAGMA table_info({table})")]
                given = dict(change.split(" = ", 1) for change in changes) | {"seq": "seq + :shift"}
                chosen = ", ".join(given.get(column, column) for column in columns)
                database.execute(
                    f"INSERT INTO {table} ({', '.join(columns)})"
                    f" SELECT {chosen} FROM {table} WHERE seq <= :last",
                    values,
                )
    assert sum(store.counts().states.values()) > 0.9 * TURNS
    store.close()
    return made


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(folder / "store.db", fingerprint=None)
    yield opened
    opened.close()


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_no_view_reads_the_store_for_long(store: SqliteStore, renderer: Renderer, view: str) -> None:
    engine = SimpleNamespace(version=1, fault=None, reduced=None)
    in_flight = SimpleNamespace(count=0, draining=False)
    gateway = SimpleNamespace(
        renderer=renderer,
        engine=engine,
        in_flight=in_flight,
        backlog=SimpleNamespace(full=False),
        faults={},
        servers=dict,
        now=lambda: 1_900_000_000.0,
    )
    named = {"session": "session-00012-9", "turn": "01k0000024-9", "version": "3", "lesson": "1"}
    scope = {"type": "http", "path": view, "query_string": b"", "headers": [], "path_params": named}
    request = Request(scope | {"scheme": "http", "server": ("localhost", 8720), "method": "GET"})
    taken = []
    for _ in range(REPEATS):
        begun = time.thread_time()
        assert VIEWS[view][1](request, gateway, store)
        taken.append(time.thread_time() - begun)
    print(f"{view}: {1000 * statistics.median(taken):.1f} ms of CPU")
    assert statistics.median(taken) < LONGEST_S


def test_a_search_that_finds_nothing_reads_the_store_for_as_long_as_a_view(store: SqliteStore) -> None:
    taken = []
    for _ in range(REPEATS):
        begun = time.thread_time()
        assert store.search("nothing has these words", limit=40).read == SEARCHED
        taken.append(time.thread_time() - begun)
    print(f"a search: {1000 * statistics.median(taken):.1f} ms of CPU")
    assert statistics.median(taken) < LONGEST_S


async def test_the_first_paint_is_measured(browser, folder: Path, renderer: Renderer) -> None:
    async with serving(folder, renderer) as made:
        page = await browser.new_page()
        url = made.url.removesuffix("/v1") + "/ui"
        await page.goto(f"{url}?token={made.app.gateway.token}")
        painted = []
        for _ in range(REPEATS):
            await page.goto(url)
            found = await page.evaluate(
                "() => new Promise(done => new PerformanceObserver("
                "list => done(list.getEntries().at(-1).startTime))"
                ".observe({type: 'paint', buffered: true}))"
            )
            painted.append(found)
        print(f"first paint: median {statistics.median(painted):.0f} ms, least {min(painted):.0f} ms")
        assert "Do you correct it less" in await page.inner_text("main")
