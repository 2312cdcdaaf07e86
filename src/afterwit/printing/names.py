"""The turns and sessions that the words of a command name."""

from __future__ import annotations

from afterwit.errors import SettingError, TurnNotFound
from afterwit.store import Filter, Store
from afterwit.turn import Kind, turn_of_response

LAST = "last"


def turn_named(store: Store, name: str) -> str:
    """The turn of this id, beginning of an id, or response; `last`: the newest. Raises TurnNotFound."""
    return _last(store) if name == LAST else store.resolve(turn_of_response(name))


def session_named(store: Store, name: str) -> str:
    """The session of this id, or of the turn of this id; `last`: of the newest turn. Raises TurnNotFound."""
    if name == LAST:
        return store.turn(_last(store)).turn.session
    if next(store.turns(Filter(session=name), limit=1), None) is not None:
        return name
    try:
        return store.turn(store.resolve(name)).turn.session
    except TurnNotFound as error:
        raise TurnNotFound(f"there is no session {name}, and no turn") from error


def _last(store: Store) -> str:
    """The newest turn of a conversation, whatever its state; without any, the newest turn."""
    for where in (Filter(kind=Kind.MAIN), None):
        found = next(iter(store.turns(where, limit=1, newest_first=True)), None)
        if found is not None:
            return found.turn.id
    raise SettingError("no turn is recorded yet: point an agent at `afterwit serve` first")
