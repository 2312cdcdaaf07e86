"""`afterwit forget`: orders that sessions are forgotten; carries it out or waits for a running learner."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from afterwit import build
from afterwit.config import Settings
from afterwit.errors import AlreadyRunning, NotRepeatable, SettingError
from afterwit.gateway.backlog import FILE as UNRECORDED
from afterwit.home.model import model_folder
from afterwit.learning.health import STAGE
from afterwit.lifecycle import Reason
from afterwit.practice.table import order_unlearning, practised_with
from afterwit.printing.terminal import Working, working
from afterwit.store import Filter, Store
from afterwit.turn import SHARED

POLL_S = 0.5
LOADING = "loading the model as the learner does"
WAITING = "waiting for the running learner, which goes on if you stop this command"
FORGETTING = re.compile(r"forgetting: update (\d+) of (\d+)")
"""The learner's status meanwhile."""


def forget_session(settings: Settings, home: Path, session: str, *, replay: bool) -> str:
    """Forget a session; returns a sentence for people.

    SettingError for an unknown or forgotten session. NotRepeatable if a later update cannot be run again;
    then nothing has changed.
    """

    def required(store: Store) -> Sequence[str]:
        if not store.turn_ids(session):
            raise SettingError(f"there is no session {session}: `afterwit show TURN` names a turn's session")
        there = next(store.turns(Filter(session=session), limit=1), None) is not None
        if not there and all(order.session != session for order in store.forget_orders()):
            raise SettingError(
                f"nothing of session {session} is stored any more ({Reason.FORGOTTEN}, or pruned)"
            )
        return (session,)

    return _forgotten(settings, home, required, replay=replay)


def forget_practice(settings: Settings, home: Path, number: int) -> str:
    """Drop a lesson and forget what practised it; its corrections stay. Returns a sentence for people.

    SettingError if there is no such lesson. NotRepeatable as for a session.
    """
    others = list[int]()

    def ordered(store: Store) -> Sequence[str]:
        others.extend(practised_with(store, number))
        name = order_unlearning(store, number, now=time.time())
        return () if name is None else (name,)

    said = _forgotten(settings, home, ordered, replay=True).replace("session lesson:", "practice of lesson ")
    if not others:
        return said
    lessons = "lessons" if len(others) > 1 else "lesson"
    return f"{said}; practised with it, and so once more: {lessons} {', '.join(map(str, others))}"


def forget_adapter(settings: Settings, home: Path, adapter: str) -> str:
    """Forget every session in which a personal adapter answered, and so all that it learned.

    SettingError if it never answered, or is forgotten already.
    """

    def answered(store: Store) -> Sequence[str]:
        if found := store.sessions_of(adapter):
            return found
        known = sorted({version.adapter for version in store.versions()} - {SHARED})
        names = f"; with versions there are: {', '.join(known)}" if known else ""
        raise SettingError(f"nothing of an adapter {adapter} is stored{names}")

    return _forgotten(settings, home, answered, replay=False)


def _forgotten(
    settings: Settings, home: Path, chosen: Callable[[Store], Sequence[str]], *, replay: bool
) -> str:
    """Order it, then carry it out in this process, or wait while a learner that runs does so.

    SettingError while turns wait outside of the store: they may be of what is forgotten.
    """
    if (waiting := home / UNRECORDED).exists() and waiting.stat().st_size:
        raise SettingError(
            f"{waiting} holds turns that were served while the store was away: `afterwit serve` records them;"
            " forget afterwards"
        )
    build.require_store(settings.store, home)
    folder = model_folder(settings.model, home)
    versions = build.versions_of(home, folder, settings.versions)
    with closing(build.store_of_model(settings, home, folder)) as store:
        if not (sessions := chosen(store)):
            return "nothing of it is in the weights"
        named = f"session {sessions[0]} is" if len(sessions) == 1 else f"{len(sessions)} sessions are"
        with store.transaction():
            for session in sessions:
                store.order_forgetting(session, replay=replay, now=time.time())
        with working(LOADING) as line:
            while _left(store, sessions):
                try:
                    with versions.learning(), store.leading():
                        line.step(LOADING)
                        stage = build.learn_stage(settings, store, build.trainer_of(settings, home, folder))
                        stage.begin()
                        sentences = stage.forget(lambda: _show(store, line))
                        _left(store, sessions)
                        return "; ".join(sentences) or f"{named} forgotten"
                except AlreadyRunning:
                    line.step("".join([WAITING, *_faults(store)]))
                    _show(store, line)
                    time.sleep(POLL_S)
            return f"{named} forgotten by the running learner"


def _faults(store: Store) -> list[str]:
    return [f": {each.message}" for each in store.statuses() if each.name == STAGE and not each.ok]


def _show(store: Store, line: Working) -> bool:
    """Show how far the learner is, whichever process it is in. False: nothing stops it."""
    for status in store.statuses():
        if (found := FORGETTING.fullmatch(status.message)) is not None:
            line.step("running later updates again without it", int(found[1]) - 1, int(found[2]))
    return False


def _left(store: Store, sessions: Sequence[str]) -> int:
    """How many orders are left. NotRepeatable if one failed; it is taken back."""
    orders = [order for order in store.forget_orders() if order.session in sessions]
    for order in orders:
        if order.error is not None:
            store.cancel_forgetting(order.session)
            raise NotRepeatable(
                f"{order.error}; nothing was changed. `afterwit forget {order.session} --no-replay` takes"
                " back all that was learned since, and forgets it"
            )
    return len(orders)
