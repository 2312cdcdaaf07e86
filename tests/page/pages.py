"""Pages read back, and a store that something happened in."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import httpx

from afterwit.promotion.episodes import Event, EventKind
from afterwit.store import Store
from afterwit.verdict import Source, Verdict
from afterwit.version import Origin
from tests.store.examples import HINTED, a_version, add, add_judged


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def played(store: Store) -> None:
    """Two judged turns, one learned; an update and a hold."""
    add_judged(store, "t1", HINTED, now=10.0)
    add_judged(store, "t2", Verdict(reward=1, source=Source.VOTES), now=20.0)
    add(store, "t3", now=30.0)
    store.commit_version(a_version(0, parent=None, origin=Origin.BASE), now=40.0)
    store.commit_version(a_version(1, ["t1"], created=50.0, metrics={"loss": 0.5}), now=50.0)
    store.published(1, now=60.0)
    store.decided(
        Event(kind=EventKind.HOLD, at=70.0, version=1, evidence=21.0, words="an update was held back")
    )


def token_of(page: httpx.Response) -> str:
    found = re.search(r'name="form" value="([0-9a-f]+)"', page.text)
    assert found is not None
    return found[1]
