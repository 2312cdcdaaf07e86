"""Tells trackers and a collector what is new, in order. The store holds how far each has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from uuid import uuid4

import orjson

from afterwit.errors import AfterwitError, TrackerFailed
from afterwit.retry import BackOff
from afterwit.store import AsyncStore, Store
from afterwit.tracking.history import Told, news
from afterwit.tracking.traces import Traces
from afterwit.tracking.trackers import Tracker
from afterwit.worker import Report, Signals, StageHealth, work

STAGE = "tracking"


Opens = Callable[[str], Tracker]
"""A tracker for the run of this id."""


class Tracking:
    """Tells trackers. Each has its own place in the history, so that one that fails holds up no other."""

    def __init__(
        self,
        store: AsyncStore,
        trackers: Mapping[str, Opens],
        *,
        owner: str,
        now: Callable[[], float],
        report: Report,
        traces: Traces | None = None,
    ) -> None:
        """`owner` is this process: of several over one store, one tells."""
        self._traces = traces
        self._store, self._trackers, self._owner = store, trackers, owner
        self._now, self._report = now, report
        self._open: dict[str, Tracker] = {}

    async def run(self, signals: Signals, *, poll_s: float, back_off: BackOff) -> None:
        """Step until told to stop, then close the trackers."""
        try:
            health = StageHealth(STAGE, self._report)
            await work(self.step, signals=signals, health=health, poll_s=poll_s, back_off=back_off)
        finally:
            for name in list(self._open):
                await asyncio.to_thread(self._close, name)
            if self._traces is not None:
                await asyncio.to_thread(self._traces.close)

    async def step(self) -> bool:
        """Tell each tracker the next of what is new; False if nothing is left. Raises the first failure."""
        now = self._now()
        if not await self._store.call(lambda store: may_tell(store, self._owner, now=now)):
            return False
        run = await self._store.call(run_id)
        told = False
        failed: AfterwitError | None = None
        for name in self._trackers:
            try:
                told |= await self._tell(name, run, now)
            except Exception as error:  # the other trackers go on, and this one is tried again
                await asyncio.to_thread(self._close, name)
                failed = failed or _attributed(name, error)
        if self._traces is not None:
            try:
                told |= await self._traces.step(now)
            except TrackerFailed as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return told

    async def _tell(self, name: str, run: str, now: float) -> bool:
        after = await self._store.call(lambda store: told_until(store, name))
        found = await self._store.call(lambda store: news(store, after=after, now=now))
        for each in found:
            await asyncio.to_thread(self._log, name, run, each)
            await self._store.call(partial(_told, name=name, version=each.version))
        return bool(found)

    def _log(self, name: str, run: str, told: Told) -> None:
        if name not in self._open:
            self._open[name] = self._trackers[name](run)
        self._open[name].log(told.version, told.values, told.at)

    def _close(self, name: str) -> None:
        if (tracker := self._open.pop(name, None)) is not None:
            with suppress(Exception):  # it failed before, or this process ends
                tracker.close()


def _attributed(name: str, error: Exception) -> AfterwitError:
    """A tracker's own error with its message: it was told nothing but numbers."""
    if isinstance(error, AfterwitError):
        return error
    said = " ".join(str(error).split())[:300]
    failure = TrackerFailed(
        f"the tracker {name} was not told, and is tried again: {type(error).__name__}: {said}"
    )
    failure.__cause__ = error
    return failure


def run_id(store: Store) -> str:
    """The id of this store's one run, made at the first call."""
    with store.transaction():
        if (known := store.note("tracking.run")) is not None:
            return known
        made = uuid4().hex[:12]
        store.set_note("tracking.run", made)
    return made


def told_until(store: Store, name: str) -> int:
    """The newest version that this tracker was told of; -1: none."""
    text = store.note(_note(name))
    if text is None:
        return -1
    newest = store.newest_versions(limit=1)
    told, there = int(text), newest[0].number if newest else -1
    if there < told:  # versions were lost with their checkpoints: their numbers come again
        _told(store, name, there)
    return min(told, there)


def _told(store: Store, name: str, version: int) -> None:
    store.set_note(_note(name), str(version))


def _note(name: str) -> str:
    return f"tracking.{name}"


NOTE = "tracking.teller"


LEASE_S = 300.0
"""Seconds after which another process takes over from one that is gone."""


def may_tell(store: Store, owner: str, *, now: float) -> bool:
    """Whether this process tells now: it did so last, or whoever did is gone."""
    with store.transaction():
        text = store.note(NOTE)
        held = orjson.loads(text) if text is not None else None
        if held is not None and held["owner"] != owner and held["until"] > now:
            return False
        if held is None or held["owner"] != owner or held["until"] < now + LEASE_S / 2:
            store.set_note(NOTE, orjson.dumps({"owner": owner, "until": now + LEASE_S}).decode())
    return True
