"""What Afterwit notes beside a group, in `overrides[i]` and `group_overrides`, because the server drops
fields that it does not know. Everything is under one key, which other consumers pass over."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, TypeVar

from afterwit.wire.atropos.group import GroupNotes, SequenceNotes, TurnNotes

KEY = "afterwit"
Held = TypeVar("Held", str, int)


def write_group_notes(notes: GroupNotes | None, *, profile: str | None) -> dict[str, Any]:
    if notes is None:
        return {}
    found = {
        "tau": notes.tau,
        "profile": profile,
        "teacher": notes.teacher,
        "top_k": notes.top_k,
        "truncated": notes.truncated or None,
    }
    return {KEY: {name: value for name, value in found.items() if value is not None}}


def read_group_notes(overrides: Mapping[str, Any]) -> tuple[GroupNotes | None, str | None]:
    """The notes and the profile, None if there are none.

    ValueError, TypeError, KeyError or AttributeError if they are not ours.
    """
    noted = overrides.get(KEY)
    if noted is None:
        return None, None
    notes = GroupNotes(
        tau=float(noted["tau"]),
        teacher=_held(noted, "teacher", str),
        top_k=_held(noted, "top_k", int),
        truncated=noted.get("truncated", False) is True,
    )
    return notes, _held(noted, "profile", str)


def write_notes(notes: SequenceNotes | None) -> dict[str, Any]:
    if notes is None:
        return {}
    return {KEY: {"turns": [_turn(turn) for turn in notes.turns]}}


def _turn(turn: TurnNotes) -> dict[str, Any]:
    found: dict[str, Any] = {"begin": turn.begin, "end": turn.end, "version": turn.version}
    if turn.teacher_version is not None:
        found["teacher_version"] = turn.teacher_version
    if turn.hints:
        found["hints"] = list(turn.hints)
    if turn.unscored is not None:
        found["unscored"] = turn.unscored
    return found


def read_notes(overrides: Mapping[str, Any]) -> SequenceNotes | None:
    """The notes of a sequence. It raises as `read_group_notes` does."""
    noted = overrides.get(KEY)
    if noted is None:
        return None
    return SequenceNotes(
        turns=tuple(
            TurnNotes(
                begin=index(turn["begin"]),
                end=index(turn["end"]),
                version=index(turn["version"]),
                teacher_version=_held(turn, "teacher_version", int),
                hints=tuple(map(str, turn.get("hints", ()))),
                unscored=_held(turn, "unscored", str),
            )
            for turn in noted["turns"]
        )
    )


def _held(noted: Mapping[str, Any], name: str, kind: type[Held]) -> Held | None:
    """None if it is absent; TypeError if it is of another type."""
    value = noted.get(name)
    if value is None or isinstance(value, kind):
        return value
    raise TypeError(f"{name} is {value!r}")
