"""JSON as a group. What does not fit is refused whole, with a reason: nothing is padded, cut or guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.core.errors import RequestError
from afterwit.core.rollout import TeacherRow, is_logprob
from afterwit.wire.atropos.columns import (
    BadGroup,
    Refusal,
    column,
    ids_of,
    numbers_column,
    numbers_of,
    optional,
    positions,
    required,
)
from afterwit.wire.atropos.group import MOST_SCORE, ScoredGroup, ScoredSequence
from afterwit.wire.atropos.notes import KEY, read_group_notes, read_notes
from afterwit.wire.atropos.profiles import SENTINEL, Profile, profile_of, read_rows
from afterwit.wire.atropos.write import OUTSIDE
from afterwit.wire.fields import as_list, as_object


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
        raise BadGroup(Refusal.NOTES, f"the notes beside the group cannot be read: {error}") from error
    rows = _teacher(data, tokens, own, noted, notes.top_k if notes else None, vocabulary)
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
            read_rows(profile, checked_ids[at], checked[at], tokens[at], own[at] if own else ())
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
