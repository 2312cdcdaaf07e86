"""JSON as a group. What does not fit is refused whole, with a reason: nothing is padded, cut or guessed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from operator import index
from typing import Any, TypeVar

from afterwit.api.dialects import as_list, as_object
from afterwit.api.turns import RequestError, TeacherRow, is_logprob
from afterwit_atropos.group import (
    MOST_SCORE,
    SENTINEL,
    GroupNotes,
    Profile,
    ScoredGroup,
    ScoredSequence,
    SequenceNotes,
    TurnNotes,
    profile_of,
    read_rows,
    write_rows,
)

Held = TypeVar("Held", str, int)

OUTSIDE = -100
"""In `masks`, a token that is in no loss; any other holds its own id."""

LARGEST = sys.float_info.max

KEY = "afterwit"


def read(data: Any, *, vocabulary: int) -> ScoredGroup:
    """A `ScoredDataGroup` of any environment. BadGroup if anything in it does not fit.

    `inference_logprobs`, `advantages`, `messages` and the teacher's rows may be absent; a field that is there
    is there for every sequence. `vocabulary` is the number of ids that the model has.
    """
    try:
        fields = as_object(data, "the group")
        return _group(fields, vocabulary)
    except RequestError as error:
        raise BadGroup(Refusal.MALFORMED, error.message) from error


def _group(data: Mapping[str, Any], vocabulary: int) -> ScoredGroup:
    tokens = [ids_of(row, f"tokens[{at}]", vocabulary) for at, row in enumerate(required(data, "tokens"))]
    if not tokens or not all(tokens):
        raise BadGroup(Refusal.LENGTHS, "the group has no sequence, or one without tokens")
    size = len(tokens)
    own = numbers_column(data, "inference_logprobs", tokens)
    scores = _bounded(numbers_of(column(data, "scores", size), "scores"), "scores")
    masks = [
        _mask(row, each, at)
        for at, (row, each) in enumerate(zip(column(data, "masks", size), tokens, strict=True))
    ]
    group_overrides = as_object(data.get("group_overrides") or {}, "group_overrides")
    overrides = optional(data, "overrides", size) or [{}] * size
    try:
        notes, noted = read_group_notes(group_overrides)
        sequence_notes = [
            read_notes(as_object(each or {}, f"overrides[{at}]")) for at, each in enumerate(overrides)
        ]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadGroup(Refusal.NOTES, f"the group's notes cannot be read: {error}") from error
    rows = _teacher(data, tokens, masks, own, noted, notes.top_k if notes else None, vocabulary)
    advantages = numbers_column(data, "advantages", tokens)
    for row in advantages or ():
        _bounded(row, "advantages")
    messages = _messages(data, size)
    try:
        return ScoredGroup(
            sequences=tuple(
                ScoredSequence(
                    tokens=tuple(tokens[at]),
                    mask=masks[at],
                    score=scores[at],
                    logprobs=_logprobs(own[at], masks[at], at) if own else None,
                    rows=rows[at] if rows else None,
                    advantages=tuple(advantages[at]) if advantages else None,
                    messages=messages[at] if messages else None,
                    notes=sequence_notes[at],
                )
                for at in range(size)
            ),
            notes=notes,
            overrides={
                name: value for name, value in group_overrides.items() if name not in (KEY, "group_size")
            },
        )
    except BadGroup:
        raise
    except ValueError as error:
        raise BadGroup(Refusal.ROWS if rows else Refusal.LENGTHS, str(error)) from error


def _bounded(values: list[float], name: str) -> list[float]:
    if values and max(map(abs, values)) > MOST_SCORE:
        raise BadGroup(Refusal.NOT_FINITE, f"{name} holds a number beyond {MOST_SCORE:g}")
    return values


def _teacher(
    data: Mapping[str, Any],
    tokens: list[list[int]],
    masks: list[tuple[bool, ...]],
    own: list[list[float]] | None,
    noted: str | None,
    top_k: int | None,
    vocabulary: int,
) -> list[tuple[TeacherRow | None, ...]] | None:
    names = ("distill_token_ids", "distill_logprobs")
    ids, logprobs = (optional(data, name, len(tokens)) for name in names)
    if (ids is None) != (logprobs is None):
        raise BadGroup(Refusal.ROWS, "one of distill_token_ids and distill_logprobs came without the other")
    if ids is None or logprobs is None:
        return None
    parsed_ids = [positions(each, f"{names[0]}[{at}]", tokens[at]) for at, each in enumerate(ids)]
    parsed = [positions(each, f"{names[1]}[{at}]", tokens[at]) for at, each in enumerate(logprobs)]
    checked_ids = [[ids_of(row, names[0], vocabulary) for row in rows] for rows in parsed_ids]
    checked = [[numbers_of(row, names[1]) for row in rows] for rows in parsed]
    try:
        profile = Profile(noted) if noted is not None else profile_of(checked_ids)
        if top_k is not None and any(len(row) > top_k for rows in checked_ids for row in rows):
            raise ValueError(f"a teacher's row has more than the {top_k} ids that were announced")
        return [
            read_rows(profile, checked_ids[at], checked[at], tokens[at], own[at] if own else (), masks[at])
            for at in range(len(tokens))
        ]
    except ValueError as error:
        raise BadGroup(Refusal.ROWS, str(error)) from error


def _logprobs(values: list[float], mask: tuple[bool, ...], at: int) -> tuple[float | None, ...]:
    for place, (value, inside) in enumerate(zip(values, mask, strict=True)):
        if inside and not is_logprob(value):
            what = "without a log-prob" if value == SENTINEL else f"with the log-prob {value:g}"
            raise BadGroup(Refusal.LOGPROBS, f"tokens[{at}][{place}] is in the loss {what}")
    return tuple(None if not inside else value for value, inside in zip(values, mask, strict=True))


def _mask(row: Any, tokens: list[int], at: int) -> tuple[bool, ...]:
    values = as_list(row, f"masks[{at}]")
    if len(values) != len(tokens):
        raise BadGroup(Refusal.LENGTHS, f"{len(tokens)} tokens but {len(values)} masks in sequence {at}")
    for value, token in zip(values, tokens, strict=True):
        if value not in (OUTSIDE, token):
            raise BadGroup(Refusal.MASK, f"masks[{at}] holds {value!r} for token {token}: -100 or the token")
    return tuple(value != OUTSIDE for value in values)


def _messages(data: Mapping[str, Any], size: int) -> list[tuple[Mapping[str, Any], ...]] | None:
    found = optional(data, "messages", size)
    if found is None:
        return None
    return [
        tuple(as_object(message, "a message") for message in as_list(each, f"messages[{at}]"))
        for at, each in enumerate(found)
    ]


def write(group: ScoredGroup, profile: Profile) -> dict[str, Any]:
    """The fields of a `ScoredDataGroup`. Its types hold finite numbers only, so this does.

    ValueError if a sequence lacks log-probs: every group carries `inference_logprobs`. In the form
    `sampled` also if the policy sampled with top-p, top-k or min-p: teacher minus student would not be 0 for
    two that are the same.
    """
    if profile is Profile.SAMPLED and group.distils and group.notes is not None and group.notes.truncated:
        raise ValueError(
            "the policy's log-probs are of a truncated distribution, the teacher's of the whole one: sample "
            "with top_p 1, top_k 0 and min_p 0, or send the form `topk`"
        )
    own = [_inference_logprobs(sequence) for sequence in group.sequences]
    data: dict[str, Any] = {
        "tokens": [list(sequence.tokens) for sequence in group.sequences],
        "masks": [_mask_column(sequence) for sequence in group.sequences],
        "scores": [sequence.score for sequence in group.sequences],
        "advantages": None,
        "ref_logprobs": None,
        "messages": None,
        "inference_logprobs": own,
        "overrides": [write_notes(sequence.notes) for sequence in group.sequences],
        "group_overrides": {
            **group.overrides,
            "group_size": len(group.sequences),
            **write_group_notes(group.notes, profile=profile if group.distils else None),
        },
        "distill_token_ids": None,
        "distill_logprobs": None,
    }
    if group.sequences[0].advantages is not None:
        data["advantages"] = [list(sequence.advantages or ()) for sequence in group.sequences]
    if group.sequences[0].messages is not None:
        data["messages"] = [list(sequence.messages or ()) for sequence in group.sequences]
    if group.distils:
        written = [
            write_rows(profile, sequence.rows or (), sequence.tokens, logprobs)
            for sequence, logprobs in zip(group.sequences, own, strict=True)
        ]
        data["distill_token_ids"] = [ids for ids, _ in written]
        data["distill_logprobs"] = [logprobs for _, logprobs in written]
    return data


def _mask_column(sequence: ScoredSequence) -> list[int]:
    return [
        token if inside else OUTSIDE for token, inside in zip(sequence.tokens, sequence.mask, strict=True)
    ]


def _inference_logprobs(sequence: ScoredSequence) -> list[float]:
    if sequence.logprobs is None:
        raise ValueError("a group leaves with the log-probs that the policy reported, or not at all")
    return [SENTINEL if value is None else value for value in sequence.logprobs]


class Refusal(StrEnum):
    """Why a group is refused. The value is what metrics count."""

    MALFORMED = "malformed"
    """A field is missing or has another type."""
    LENGTHS = "lengths"
    """Fields of one sequence have different lengths, or fields of one group."""
    NOT_FINITE = "not_finite"
    UNKNOWN_ID = "unknown_id"
    """An id that the vocabulary does not have."""
    MASK = "mask"
    """A mask holds what is neither -100 nor the token."""
    LOGPROBS = "logprobs"
    """A sampled token without a valid log-prob."""
    ROWS = "rows"
    """Invalid teacher rows: without the sampled id, or with probabilities beyond 1."""
    NOTES = "notes"
    """Afterwit's notes on a group were changed in transit."""


class BadGroup(ValueError):
    """A group that cannot be trained on."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


def numbers_column(data: Mapping[str, Any], name: str, tokens: list[list[int]]) -> list[list[float]] | None:
    """One number for each token, for each sequence."""
    found = optional(data, name, len(tokens))
    if found is None:
        return None
    return [
        numbers_of(positions(row, f"{name}[{at}]", tokens[at]), f"{name}[{at}]")
        for at, row in enumerate(found)
    ]


def positions(value: Any, name: str, tokens: list[int]) -> list[Any]:
    values = as_list(value, name)
    if len(values) != len(tokens):
        raise BadGroup(Refusal.LENGTHS, f"{len(tokens)} tokens but {len(values)} in {name}")
    return values


def required(data: Mapping[str, Any], name: str) -> list[Any]:
    return as_list(data.get(name), name)


def column(data: Mapping[str, Any], name: str, size: int) -> list[Any]:
    values = required(data, name)
    if len(values) != size:
        raise BadGroup(Refusal.LENGTHS, f"{size} sequences but {len(values)} {name}")
    return values


def optional(data: Mapping[str, Any], name: str, size: int) -> list[Any] | None:
    """A column that may be absent; the public server turns an absent one into an empty list, or null."""
    if not data.get(name):
        return None
    return column(data, name, size)


def ids_of(value: Any, name: str, vocabulary: int) -> list[int]:
    values = as_list(value, name)
    for each in values:
        if type(each) is not int:
            raise BadGroup(Refusal.MALFORMED, f"{name} holds {each!r}, which is not an id")
        if not 0 <= each < vocabulary:
            raise BadGroup(Refusal.UNKNOWN_ID, f"{name} holds id {each}, but the vocabulary has {vocabulary}")
    return values


def numbers_of(values: Any, name: str) -> list[float]:
    found = as_list(values, name)
    for each in found:
        if type(each) not in (int, float):
            raise BadGroup(Refusal.MALFORMED, f"{name} holds {each!r}, which is not a number")
        if not -LARGEST < each < LARGEST:
            raise BadGroup(Refusal.NOT_FINITE, f"{name} holds a number that is not finite")
    return list(map(float, found))


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
