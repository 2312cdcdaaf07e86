"""Groups as JSON. One that does not fit is refused whole, with a reason: nothing is padded or guessed."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from afterwit.api.dialects import as_list, as_object
from afterwit.api.turns import RequestError, TeacherRow
from afterwit_atropos.group import (
    BadGroup,
    GroupNotes,
    Profile,
    Refusal,
    ScoredGroup,
    ScoredSequence,
    SequenceNotes,
    group_of,
)
from afterwit_atropos.rollout import ScoredRollout

Read = TypeVar("Read")

OUTSIDE = -100
"""In `masks`, a token that is in no loss; any other holds its own id."""

SENTINEL = 1.0
"""`inference_logprobs` of a token that the policy did not sample. No log-prob is above 0."""

MOST_MASS = 1.05
"""The most that a row's probabilities may sum to, rounded as they are."""

PADDING = (0, 0.0)
"""The id and log-prob with which other environments fill a row to one width, or a position without one."""

LARGEST = sys.float_info.max

KEY = "afterwit"
"""Of our notes in `overrides` and `group_overrides`."""

GROUP_NOTES, SEQUENCE_NOTES = TypeAdapter(GroupNotes), TypeAdapter(SequenceNotes)

TEACHER = ("distill_token_ids", "distill_logprobs")


def read(data: Any, *, vocabulary: int) -> ScoredGroup:
    """A `ScoredDataGroup` of any environment. BadGroup if anything in it does not fit.

    `inference_logprobs`, `advantages`, `messages` and the teacher's rows may be absent; a field that is there
    is there for every sequence. `vocabulary` is the number of ids that the model has.
    """
    try:
        return _group(as_object(data, "the group"), vocabulary)
    except RequestError as error:
        raise BadGroup(Refusal.MALFORMED, error.message) from error


def _group(data: Mapping[str, Any], vocabulary: int) -> ScoredGroup:
    tokens = [
        _ids(row, f"tokens[{at}]", vocabulary) for at, row in enumerate(as_list(data.get("tokens"), "tokens"))
    ]
    size = len(tokens)
    scores = _numbers(_column(data, "scores", size), "scores")
    found = _at_tokens(data, "masks", tokens, as_list, required=True)
    masks = [_mask(row, ids, at) for at, (row, ids) in enumerate(zip(found, tokens, strict=True))]
    own = _at_tokens(data, "inference_logprobs", tokens, _numbers)
    advantages = _at_tokens(data, "advantages", tokens, _numbers)
    notes, profile = _group_notes(as_object(data.get("group_overrides") or {}, "group_overrides"))
    overrides = _optional(data, "overrides", size) or [{}] * size
    noted = [_noted(SEQUENCE_NOTES, as_object(each or {}, "overrides")) for each in overrides]
    rows = _rows(data, tokens, masks, own, profile, notes.top_k if notes else None, vocabulary)
    messages = _optional(data, "messages", size)
    sequences = []
    for at, ids in enumerate(tokens):
        try:
            sequence = ScoredSequence(
                tokens=tuple(ids),
                mask=masks[at],
                score=scores[at],
                logprobs=_logprobs(own[at], masks[at]) if own else None,
                rows=rows[at] if rows else None,
                advantages=tuple(advantages[at]) if advantages else None,
                messages=_messages(messages[at]) if messages else None,
                notes=noted[at],
            )
        except BadGroup as error:
            raise BadGroup(error.refusal, f"sequence {at}: {error}") from error
        sequences.append(sequence)
    return ScoredGroup(sequences=tuple(sequences), notes=notes)


def _rows(
    data: Mapping[str, Any],
    tokens: list[list[int]],
    masks: list[tuple[bool, ...]],
    own: list[list[float]],
    profile: Profile | None,
    top_k: int | None,
    vocabulary: int,
) -> list[tuple[TeacherRow | None, ...]]:
    """The teacher's rows of each sequence; empty if none was sent."""
    ids = _at_tokens(
        data, TEACHER[0], tokens, lambda rows, name: [_ids(row, name, vocabulary) for row in rows]
    )
    logprobs = _at_tokens(data, TEACHER[1], tokens, lambda rows, name: [_numbers(row, name) for row in rows])
    if bool(ids) != bool(logprobs):
        raise BadGroup(Refusal.ROWS, f"one of {' and '.join(TEACHER)} came without the other")
    if top_k is not None and any(len(row) > top_k for rows in ids for row in rows):
        raise BadGroup(Refusal.ROWS, f"a teacher's row has more than the {top_k} ids that were announced")
    if profile is None:
        profile = Profile.SAMPLED if all(len(row) == 1 for rows in ids for row in rows) else Profile.TOPK
    try:
        return [
            read_rows(profile, ids[at], logprobs[at], tokens[at], own[at] if own else (), masks[at])
            for at in range(len(ids))
        ]
    except ValueError as error:
        raise BadGroup(Refusal.ROWS, str(error)) from error


def _mask(values: list[Any], tokens: list[int], at: int) -> tuple[bool, ...]:
    for value, token in zip(values, tokens, strict=True):
        if value not in (OUTSIDE, token):
            raise BadGroup(
                Refusal.MASK, f"masks[{at}] holds {_shown(value)} for token {token}: -100 or the token"
            )
    return tuple(value != OUTSIDE for value in values)


def _logprobs(values: list[float], mask: tuple[bool, ...]) -> tuple[float | None, ...]:
    return tuple(
        value if inside and value != SENTINEL else None for value, inside in zip(values, mask, strict=True)
    )


def _messages(value: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(as_object(message, "a message") for message in as_list(value, "messages"))


def read_rows(
    profile: Profile,
    ids: Sequence[Sequence[int]],
    logprobs: Sequence[Sequence[float]],
    tokens: Sequence[int],
    own: Sequence[float],
    mask: Sequence[bool],
) -> tuple[TeacherRow | None, ...]:
    """The rows of one sequence of any environment; `own` is its `inference_logprobs`. Raises ValueError for a
    malformed row.

    The sampled id may be anywhere in its row, and the others in any order. A position is without a row if it
    is outside the loss, if its row is padding alone, or, in the form `sampled`, if its value equals its own
    log-prob.
    """
    return tuple(
        _row(profile, at, ids[at], logprobs[at], tokens[at], own[at] if own else None) if mask[at] else None
        for at in range(len(tokens))
    )


def _row(
    profile: Profile,
    at: int,
    ids: Sequence[int],
    logprobs: Sequence[float],
    token: int,
    own: float | None,
) -> TeacherRow | None:
    if len(ids) != len(logprobs):
        raise ValueError(f"{len(ids)} teacher ids but {len(logprobs)} log-probs at token {at}")
    pairs = list(zip(ids, map(float, logprobs), strict=True))
    if profile is Profile.SAMPLED and pairs == [(token, own)]:
        return None
    padded = _mass(pairs) > MOST_MASS or token not in ids
    while padded and pairs and pairs[-1] == PADDING:
        pairs.pop()
    if not pairs:
        return None
    pairs.sort(key=lambda pair: (pair[0] != token, -pair[1]))
    if pairs[0][0] != token:
        raise ValueError(f"the teacher's row at token {at} lacks the sampled id {token}")
    try:
        row = TeacherRow(ids=tuple(each for each, _ in pairs), logprobs=tuple(value for _, value in pairs))
        if (mass := _mass(pairs)) > MOST_MASS:
            raise ValueError(f"the probabilities of a teacher's row sum to {mass:.3g}")
        return row
    except ValueError as error:
        raise ValueError(f"token {at}: {error}") from error


def _mass(pairs: Sequence[tuple[int, float]]) -> float:
    return sum(math.exp(min(value, 1.0)) for _, value in pairs)


def group_data(
    scored: Sequence[ScoredRollout],
    scores: Sequence[float],
    profile: Profile,
    top_k: int | None,
    *,
    messages: bool,
) -> dict[str, Any] | None:
    """The rollouts of one item as a `ScoredDataGroup`; None if they teach nothing: equal scores, no row."""
    group = group_of(scored, scores, top_k=top_k)
    if not any(each.scored for each in scored):
        if len(set(scores)) == 1:
            return None
        group = replace(group, sequences=tuple(replace(each, rows=None) for each in group.sequences))
    data = write(group, profile)
    return data if messages else {**data, "messages": None}


def write(group: ScoredGroup, profile: Profile) -> dict[str, Any]:
    """The fields of a `ScoredDataGroup`. Every number is finite, as in the group.

    ValueError if a sequence lacks log-probs: every group carries `inference_logprobs`. In the form
    `sampled` also if the policy sampled with top-p, top-k or min-p: teacher minus student would not be 0 for
    equal weights.
    """
    if profile is Profile.SAMPLED and group.distils and group.notes is not None and group.notes.truncated:
        raise ValueError(
            "the policy's log-probs are of a truncated distribution, the teacher's of the whole one: sample "
            "with top_p 1, top_k 0 and min_p 0, or send the form `topk`"
        )
    sequences = group.sequences
    own = [_inference_logprobs(each) for each in sequences]
    rows = [
        write_rows(profile, each.rows, each.tokens, logprobs)
        for each, logprobs in zip(sequences, own, strict=True)
        if each.rows is not None
    ]
    noted = {"profile": profile} if rows else {}
    return {
        "tokens": [list(each.tokens) for each in sequences],
        "masks": [_mask_column(each) for each in sequences],
        "scores": [each.score for each in sequences],
        "advantages": _sent([each.advantages for each in sequences]),
        "ref_logprobs": None,
        "messages": _sent([each.messages for each in sequences]),
        "inference_logprobs": own,
        "overrides": [_notes(SEQUENCE_NOTES, each.notes) for each in sequences],
        "group_overrides": {"group_size": len(sequences), **_notes(GROUP_NOTES, group.notes, **noted)},
        TEACHER[0]: [ids for ids, _ in rows] or None,
        TEACHER[1]: [logprobs for _, logprobs in rows] or None,
    }


def _sent(columns: Sequence[Sequence[Any] | None]) -> list[list[Any]] | None:
    """A field that either each sequence has, or none has."""
    return None if columns[0] is None else [list(column or ()) for column in columns]


def _mask_column(sequence: ScoredSequence) -> list[int]:
    return [
        token if inside else OUTSIDE for token, inside in zip(sequence.tokens, sequence.mask, strict=True)
    ]


def _inference_logprobs(sequence: ScoredSequence) -> list[float]:
    if sequence.logprobs is None:
        raise ValueError("a sequence lacks the policy's log-probs, which every group carries")
    return [SENTINEL if value is None else value for value in sequence.logprobs]


def write_rows(
    profile: Profile,
    rows: Sequence[TeacherRow | None],
    tokens: Sequence[int],
    inference_logprobs: Sequence[float],
) -> tuple[list[list[int]], list[list[float]]]:
    """The ids of each row and their log-probs in the form of a profile, all as long as `tokens`."""
    if profile is Profile.TOPK:
        return [list(row.ids) if row else [] for row in rows], [
            list(row.logprobs) if row else [] for row in rows
        ]
    logprobs = [[row.logprobs[0] if row else own] for row, own in zip(rows, inference_logprobs, strict=True)]
    return [[token] for token in tokens], logprobs


def _at_tokens(
    data: Mapping[str, Any],
    name: str,
    tokens: list[list[int]],
    read: Callable[[list[Any], str], Read],
    *,
    required: bool = False,
) -> list[Read]:
    """For each sequence a value for each of its tokens, which are read together; empty if none was sent."""
    found, size = list[Read](), len(tokens)
    rows = _column(data, name, size) if required else _optional(data, name, size)
    for at, row in enumerate(rows or ()):
        values = as_list(row, f"{name}[{at}]")
        if len(values) != len(tokens[at]):
            raise BadGroup(Refusal.LENGTHS, f"{len(tokens[at])} tokens but {len(values)} in {name}[{at}]")
        found.append(read(values, f"{name}[{at}]"))
    return found


def _optional(data: Mapping[str, Any], name: str, size: int) -> list[Any] | None:
    """A column that may be absent; the public server turns an absent one into an empty list, or null."""
    return _column(data, name, size) if data.get(name) else None


def _column(data: Mapping[str, Any], name: str, size: int) -> list[Any]:
    values = as_list(data.get(name), name)
    if len(values) != size:
        raise BadGroup(Refusal.LENGTHS, f"{size} sequences but {len(values)} {name}")
    return values


def _ids(value: Any, name: str, vocabulary: int) -> list[int]:
    values = as_list(value, name)
    for each in values:
        if type(each) is not int:
            raise BadGroup(Refusal.MALFORMED, f"{name} holds {_shown(each)}, which is not an id")
        if not 0 <= each < vocabulary:
            raise BadGroup(Refusal.UNKNOWN_ID, f"{name} holds id {each}, but the vocabulary has {vocabulary}")
    return values


def _numbers(values: Any, name: str) -> list[float]:
    found = as_list(values, name)
    for each in found:
        if type(each) not in (int, float):
            raise BadGroup(Refusal.MALFORMED, f"{name} holds {_shown(each)}, which is not a number")
        if not -LARGEST < each < LARGEST:
            raise BadGroup(Refusal.NOT_FINITE, f"{name} holds a number that is not finite")
    return list(map(float, found))


def _shown(value: Any) -> str:
    """A number as it is; of anything else the type alone, since it may be a conversation."""
    return repr(value) if isinstance(value, int | float) else f"a {type(value).__name__}"


def _notes(adapter: TypeAdapter[Any], notes: object, **more: object) -> dict[str, Any]:
    """Notes as an entry of the overrides, without what is as by default."""
    if notes is None:
        return {}
    return {KEY: adapter.dump_python(notes, mode="json", exclude_defaults=True) | more}


def _noted(adapter: TypeAdapter[Read], overrides: Mapping[str, Any]) -> Read | None:
    """The notes in the overrides, of which every value has its own type in JSON; None if there are none."""
    if overrides.get(KEY) is None:
        return None
    try:
        return adapter.validate_json(json.dumps(overrides[KEY]), strict=True)
    except (ValueError, RecursionError) as error:
        raise BadGroup(Refusal.NOTES, f"the group's notes cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The first of pydantic's findings, in a line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or KEY}: {first['msg']}"


def _group_notes(overrides: Mapping[str, Any]) -> tuple[GroupNotes | None, Profile | None]:
    notes = _noted(GROUP_NOTES, overrides)
    name = None if notes is None else overrides[KEY].get("profile")
    if name not in (None, *Profile):
        raise BadGroup(Refusal.NOTES, f"the group's notes cannot be read: profile is {name!r}")
    return notes, name and Profile(name)
