"""Which session a person names."""

from __future__ import annotations

from afterwit.apps.cli.look.turns import LAST, last
from afterwit.store import Filter, Store


def session_named(store: Store, name: str) -> str:
    """The session of this id, or of the turn of this id; `last`: of the newest turn. TurnNotFound if there is
    none."""
    if name == LAST:
        return store.turn(last(store)).turn.session
    if next(store.turns(Filter(session=name), limit=1), None) is not None:
        return name
    return store.turn(store.resolve(name)).turn.session
