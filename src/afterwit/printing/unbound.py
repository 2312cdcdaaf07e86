"""Why a turn has no place behind an earlier one, or does not count as one, in a sentence for people."""

from __future__ import annotations

from collections.abc import Iterable

from afterwit.lifecycle import Reason
from afterwit.store import Record
from afterwit.turn import ImportedTurn, Kind

BEGINS = "begins a session: no recorded prompt and response are the beginning of its request"

NEW_SEGMENT = (
    "goes on in its session without a parent: behind a compaction, as another choice, or in the place of a"
    " turn that began it"
)

BESIDE = "is beside a conversation (a title, a summary, a review): it is served and never trained on"

BESIDE_NO_KNOWN_ONE = (
    "is beside a conversation (a title, a summary, a review), and which one is not known: it is served and"
    " never trained on"
)

SUPERSEDED = "was asked again before its answer had arrived: the later answer takes its place"

LEFT = "was left by its client before the answer ended: nobody has read it"

_BY_REASON = {
    Reason.AMBIGUOUS_PARENT: "goes on equally well from turns of several sessions, so it answers none: a"
    " session id of the client (X-Session-Id) tells them apart",
    Reason.UNKNOWN_BRANCH: "shares its parent with another request: the one that goes on will be the"
    " conversation, and until then neither trains",
    Reason.SUPERSEDED: SUPERSEDED,
    Reason.CLIENT_LEFT: LEFT,
}


def why_unbound(record: Record) -> str | None:
    """Why a turn follows no other or is not counted where it does; None if it has its place."""
    turn = record.turn
    if isinstance(turn, ImportedTurn):
        return None
    if record.superseded_by is not None:
        return SUPERSEDED
    if record.reason in _BY_REASON:
        return _BY_REASON[record.reason]
    begins = turn.parent is None and turn.session == turn.id
    if turn.kind is Kind.SIDE:
        return BESIDE_NO_KNOWN_ONE if begins else BESIDE
    if turn.parent is not None:
        return None
    return BEGINS if begins else NEW_SEGMENT


def unbound(records: Iterable[Record]) -> dict[str, list[str]]:
    """The reasons that apply to some of the turns, each with the ids of these.

    A turn that begins its session is named only if its request has earlier answers: a parent might be missed.
    """
    found: dict[str, list[str]] = {}
    for record in records:
        why = why_unbound(record)
        if why is not None and (why != BEGINS or _has_answers(record)):
            found.setdefault(why, []).append(record.turn.id)
    return found


def _has_answers(record: Record) -> bool:
    return any(message.role == "assistant" for message in record.turn.conversation.messages)
