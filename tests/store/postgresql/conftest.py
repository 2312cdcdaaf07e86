"""A schema of the session's server for each test, empty at first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from afterwit.store.postgresql import PostgresqlStore
from tests.store.places import MODEL
from tests.store.postgresql.server import server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is here needs the server."""
    for item in items:
        if "tests/store/postgresql/" in item.nodeid:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture
def url() -> str:
    return server().url(server().empty_schema())


@pytest.fixture
def store(url: str) -> Iterator[PostgresqlStore]:
    opened = PostgresqlStore.open(url, fingerprint=MODEL)
    yield opened
    opened.close()
