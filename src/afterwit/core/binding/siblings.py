"""Which of a parent's children is the conversation, and which are beside it.

An only child is the main line. Of two children it is the one that gets descendants; until then both are
unknown and do not train. A sibling that was answered and has no descendants (a reply that the client deleted
and complained of) belongs to the main line and does not contend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterwit.core.turn import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A stored turn among its siblings. Superseded turns and those whose client left are left out."""

    turn: str
    kind: Kind
    children: int
    """Turns whose parent it is, side turns not counted. Only whether there are any matters."""
    answered: bool
    """Its next state is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a new child changes."""

    kind: Kind
    """The new turn's."""
    answers: bool
    """Whether the messages that it adds are its parent's next state."""
    changes: tuple[tuple[str, Kind], ...] = ()
    """Earlier turns whose kind changes."""
    confirmed: str | None = None
    """The parent, if this child first shows that it is on the main line. The messages that the parent's own
    prompt added (`request.added_messages`) are then the next state of the parent's parent."""


def resolve(kind: Kind, *, parent: Branch | None, siblings: Sequence[Branch]) -> Resolution:
    """Decide for a turn that is bound to `parent`, which has the children `siblings` already.

    `kind` is the binding's. `siblings` holds neither the turn itself nor what it retries or rejects.
    """
    main_siblings = [sibling for sibling in siblings if sibling.kind is not Kind.SIDE]
    if kind is not Kind.MAIN or parent is None:
        return Resolution(kind=kind, answers=parent is not None and not main_siblings)
    confirmed = parent.turn if parent.kind is Kind.UNKNOWN else None
    promoted = () if confirmed is None else ((confirmed, Kind.MAIN),)
    rivals = [sibling for sibling in main_siblings if sibling.children or not sibling.answered]
    if not rivals:
        return Resolution(kind=Kind.MAIN, answers=True, changes=promoted, confirmed=confirmed)
    doubted = tuple(
        (rival.turn, Kind.UNKNOWN) for rival in rivals if rival.kind is Kind.MAIN and not rival.children
    )
    return Resolution(kind=Kind.UNKNOWN, answers=False, changes=promoted + doubted, confirmed=confirmed)
