"""The trace of a turn from the request to the version, from the times that the store keeps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from afterwit.store import EndedTurn

Attribute = str | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A named stretch of time; the first of a trace is the parent of the others."""

    name: str
    id: int
    """8 bytes, never 0."""
    begun: float
    ended: float
    """Seconds since the epoch."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


def trace_id(turn: str) -> int:
    """16 bytes, never 0: the same for a turn everywhere and always."""
    return _number(turn, 16)


def spans_of(turn: EndedTurn) -> list[Span]:
    """The whole turn first; within it what is known of: the request, until its response was whole; the
    answer, from there until what followed was known; the judge, until the verdict; the update that trained on
    it; and the version, from its commit until it was served.

    A turn that ends a second time, after a late reply, gives spans of other ids in the same trace.
    """
    known = [
        Span(name=name, id=_id(turn, name), begun=begun, ended=max(begun, ended), attributes=more)
        for name, begun, ended, more in _parts(turn)
        if begun is not None and ended is not None
    ]
    whole = Span(
        name="turn",
        id=_id(turn, "turn"),
        begun=turn.asked,
        ended=max([turn.asked, turn.ended, *(each.ended for each in known)]),
        attributes=_said(
            turn=turn.turn,
            session=turn.session,
            kind=str(turn.kind),
            state=str(turn.state),
            reason=None if turn.reason is None else str(turn.reason),
        ),
    )
    return [whole, *known]


def _parts(turn: EndedTurn) -> Iterator[tuple[str, float | None, float | None, dict[str, Attribute]]]:
    yield "request", turn.asked, turn.recorded, _said(sampled_by_version=turn.oldest_version)
    yield "answer", turn.recorded or turn.asked, turn.answered, {}
    verdict = _said(reward=turn.reward, hinted=turn.hinted)
    yield "judge", turn.answered or turn.recorded, turn.judged, verdict
    yield "train", turn.update_began, turn.committed, _said(version=turn.version)
    yield "version", turn.committed, turn.published, _said(version=turn.version)


def _said(**values: Attribute | None) -> dict[str, Attribute]:
    return {f"afterwit.{name}": value for name, value in values.items() if value is not None}


def _id(turn: EndedTurn, name: str) -> int:
    return _number(f"{turn.turn} {name} {turn.ended}", 8)


def _number(words: str, size: int) -> int:
    return int.from_bytes(sha256(words.encode()).digest()[:size]) or 1
