"""Self-tests of the store, and the stages' health that it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from afterwit.apps import build
from afterwit.apps.config import Settings
from afterwit.apps.doctor.finding import Finding, tested
from afterwit.apps.home import STORE, store_url
from afterwit.apps.stores import store_exists


def check(settings: Settings, home: Path, folder: Path) -> Iterator[Finding]:
    """Every test of the store, and the stages' last reports."""
    url = store_url(home, settings.store.url)
    if not store_exists(url):
        place = "at store.url" if settings.store.url else home / STORE
        yield Finding(name="store", ok=True, seen=f"none yet; it will be {place}")
    else:
        yield tested(
            "store",
            lambda: _opens(settings, home, folder),
            remedy="choose another --home, or the model it belongs to",
        )
        yield from _stages(home)


def _opens(settings: Settings, home: Path, folder: Path) -> str:
    with closing(build.store_of_model(settings, home, folder)) as store:
        states = ", ".join(f"{state.value} {count}" for state, count in store.counts().states.items())
        return f"{store.size() / 2**20:.1f} MiB; {states or 'no turns yet'}"


def _stages(home: Path) -> Iterator[Finding]:
    with build.store_of_home(home) as store:
        for status in store.statuses():
            yield Finding(
                name=f"stage {status.name}",
                ok=status.ok,
                seen=status.message,
                remedy="" if status.ok else "it tries again by itself; its last words say what it needs",
            )
