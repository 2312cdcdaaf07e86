"""Gateways, judges, a learner and a publisher over one server: processes that go on whatever is killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

from afterwit.errors import StoreError, StoreUnavailable, TurnNotFound
from afterwit.store import Store
from tests.store.examples import HINTED, NO, a_version, add
from tests.store.places import Place
from tests.store.worker import manifests, note, rename_into_place

T = TypeVar("T")
LEASE_S = 1.0
STOP = "stop"


def going_on(folder: Path, step: Callable[[], T]) -> T | None:
    """The result of the step, retried as long as the server is away; None once it is to stop."""
    while not (folder / STOP).exists():
        try:
            return step()
        except StoreUnavailable:
            time.sleep(0.05)
    return None


def gateway(place: Place, folder: Path, tag: str) -> None:
    """Stores turns, and what follows the one before. What is noted was acknowledged."""
    store = going_on(folder, place.open)
    for number in count():
        if store is None or (folder / STOP).exists():
            return
        stored(store, folder, f"{tag}n{number}")
        if number:
            answer = partial(store.answer, f"{tag}n{number - 1}", NO, answered_by=None)
            going_on(folder, lambda answer=answer: answer(now=time.time()))  # type: ignore[misc]


def stored(store: Store, folder: Path, name: str) -> None:
    def step() -> bool:
        with suppress(TurnNotFound):  # the server died after it had stored the turn, before it confirmed
            return bool(store.turn(name))
        add(store, name)
        return True

    if going_on(folder, step):
        note(folder / "acknowledged", name)


def judge(place: Place, folder: Path, owner: str) -> None:
    store = going_on(folder, place.open)
    while store is not None and not (folder / STOP).exists():
        try:
            judge_some(store, owner, time.time())
        except StoreUnavailable:
            time.sleep(0.05)


def judge_some(store: Store, owner: str, now: float) -> int:
    claimed = store.claim("judge", owner=owner, limit=3, lease_s=LEASE_S, now=now)
    for record in claimed:
        store.judged(record.turn.id, HINTED, rl=True, opd=True, reason=None, owner=owner, now=now)
    return len(claimed)


def learner(place: Place, folder: Path) -> None:
    """The only one: it begins by following the folder of manifests, and does so again after each failure."""
    store = going_on(folder, place.open)
    while store is not None and not (folder / STOP).exists():
        try:
            store.reconcile(manifests(folder), now=time.time())
            while not (folder / STOP).exists():
                learn_some(store, folder, time.time())
        except StoreUnavailable:
            time.sleep(0.05)


def learn_some(store: Store, folder: Path, now: float) -> int:
    claimed = store.claim("learn", owner="learner", limit=8, lease_s=LEASE_S, now=now)
    if not claimed:
        time.sleep(0.02)
        return 0
    held = store.extend([record.turn.id for record in claimed], owner="learner", lease_s=60, now=now)
    version = a_version(manifests(folder)[-1].number + 1, held)
    rename_into_place(folder, version)
    store.commit_version(version, now=now)
    return len(held)


def publisher(place: Place, folder: Path) -> None:
    store = going_on(folder, place.open)
    while store is not None and not (folder / STOP).exists():
        newest = manifests(folder)[-1]
        try:
            store.commit_version(newest, now=time.time())
            store.published(newest.number, now=time.time())
        except StoreError:  # it was lost with the server, or the learner is replacing it
            time.sleep(0.05)
        time.sleep(0.02)
