"""`afterwit forget`: orders that sessions are forgotten; carries it out or waits for a running learner."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from afterwit import build
from afterwit.adapters import SHARED
from afterwit.config import Settings
from afterwit.errors import AlreadyRunning, NotRepeatable, SettingError
from afterwit.home.model import model_folder
from afterwit.lifecycle import Reason
from afterwit.store import Filter, Store

POLL_S = 0.5


def forget_session(settings: Settings, home: Path, session: str, *, replay: bool) -> str:
    """Forget a session; returns a sentence for people.

    SettingError for an unknown or forgotten session. NotRepeatable if a later update cannot be run again;
    then nothing has changed.
    """
    return _forgotten(settings, home, lambda store: _required(store, session), replay=replay)


def forget_adapter(settings: Settings, home: Path, adapter: str) -> str:
    """Forget every session in which a personal adapter answered, and so all that it learned.

    SettingError if it never answered, or is forgotten already.
    """
    return _forgotten(settings, home, lambda store: _sessions_of(store, adapter), replay=False)


def _forgotten(
    settings: Settings, home: Path, chosen: Callable[[Store], Sequence[str]], *, replay: bool
) -> str:
    folder = model_folder(settings.model, home)
    versions = build.versions_of(home, folder, settings.versions)
    with closing(build.store_of_model(settings, home, folder)) as store:
        sessions = chosen(store)
        with store.transaction():
            for session in sessions:
                store.order_forgetting(session, replay=replay, now=time.time())
        try:
            with versions.learning(), store.leading():
                return _here(settings, home, folder, store, sessions)
        except AlreadyRunning:
            return _waited(store, sessions)


def _required(store: Store, session: str) -> Sequence[str]:
    _require_session(store, session)
    return (session,)


def _sessions_of(store: Store, adapter: str) -> Sequence[str]:
    if found := store.sessions_of(adapter):
        return found
    known = sorted({version.adapter for version in store.versions()} - {SHARED})
    names = f"; with versions there are: {', '.join(known)}" if known else ""
    raise SettingError(f"nothing of an adapter {adapter} is stored{names}")


def _require_session(store: Store, session: str) -> None:
    if not store.turn_ids(session):
        raise SettingError(f"there is no session {session}: `afterwit show TURN` names a turn's session")
    if next(store.turns(Filter(session=session), limit=1), None) is None and not any(
        order.session == session for order in store.forget_orders()
    ):
        raise SettingError(f"nothing of session {session} is stored any more ({Reason.FORGOTTEN}, or pruned)")


def _here(settings: Settings, home: Path, folder: Path, store: Store, sessions: Sequence[str]) -> str:
    """Carry the order out in this process, which is the only learner."""
    trainer = build.trainer_of(settings, home, folder)
    stage = build.learn_stage(settings, store, trainer)
    stage.begin()
    sentences = stage.forget()
    _raise_error(store, sessions)
    return "; ".join(sentences) or f"{_named(sessions)} forgotten"


def _waited(store: Store, sessions: Sequence[str]) -> str:
    """Wait until the learner that runs has carried the orders out."""
    while any(order.session in sessions for order in store.forget_orders()):
        _raise_error(store, sessions)
        time.sleep(POLL_S)
    return f"{_named(sessions)} forgotten; the learner that runs has seen to it"


def _named(sessions: Sequence[str]) -> str:
    return f"session {sessions[0]} is" if len(sessions) == 1 else f"{len(sessions)} sessions are"


def _raise_error(store: Store, sessions: Sequence[str]) -> None:
    """NotRepeatable if an order failed; it is taken back."""
    for order in store.forget_orders():
        if order.session in sessions and order.error is not None:
            store.cancel_forgetting(order.session)
            raise NotRepeatable(
                f"{order.error}; nothing was changed. `afterwit forget {order.session} --no-replay` takes"
                " back all that was learned since, and forgets it"
            )
