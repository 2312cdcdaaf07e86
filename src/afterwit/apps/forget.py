"""`afterwit forget`: orders that a session is forgotten, and sees to it or waits for a learner that runs."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from afterwit.apps import build
from afterwit.apps.config import Settings
from afterwit.apps.model import model_folder
from afterwit.core.errors import AlreadyRunning, NotReplayable, SettingError
from afterwit.core.lifecycle import Reason
from afterwit.store import Filter, Store

POLL_S = 0.5


def forget(settings: Settings, home: Path, session: str, *, replay: bool) -> str:
    """Forget a session; a sentence on what was done.

    SettingError if there is no such session, or it is forgotten already. NotReplayable if a later update
    cannot be run again: nothing has changed then.
    """
    folder = model_folder(settings.model, home)
    versions = build.versions_of(home, folder, settings.versions)
    with closing(build.store_of_model(settings, home, folder)) as store:
        _require_session(store, session)
        store.order_forgetting(session, replay=replay, now=time.time())
        try:
            with versions.learning(), store.leading():
                return _here(settings, home, folder, store, session)
        except AlreadyRunning:
            return _waited(store, session)


def _require_session(store: Store, session: str) -> None:
    if not store.turn_ids(session):
        raise SettingError(f"there is no session {session}: `afterwit show TURN` names a turn's session")
    if next(store.turns(Filter(session=session), limit=1), None) is None and not any(
        order.session == session for order in store.forget_orders()
    ):
        raise SettingError(f"nothing of session {session} is stored any more ({Reason.FORGOTTEN}, or pruned)")


def _here(settings: Settings, home: Path, folder: Path, store: Store, session: str) -> str:
    """Carry the order out in this process, which is the only learner."""
    trainer = build.trainer_of(settings, home, folder)
    stage = build.learn_stage(settings, store, trainer)
    stage.begin()
    said = stage.forget()
    _raise_error(store, session)
    return "; ".join(said) or f"session {session} is forgotten"


def _waited(store: Store, session: str) -> str:
    """Wait until the learner that runs has carried the order out."""
    while any(order.session == session for order in store.forget_orders()):
        _raise_error(store, session)
        time.sleep(POLL_S)
    return f"session {session} is forgotten; the learner that runs has seen to it"


def _raise_error(store: Store, session: str) -> None:
    """NotReplayable if the order failed; it is taken back."""
    for order in store.forget_orders():
        if order.session == session and order.error is not None:
            store.cancel_forgetting(session)
            raise NotReplayable(
                f"{order.error}; nothing was changed. `afterwit forget {session} --no-replay` takes back all"
                " that was learned since, and forgets it"
            )
