"""Nouns to columns, and rows to nouns.

A turn's columns hold plain Python types: drivers adapt subclasses, such as enums, value by value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache
from itertools import groupby
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import orjson

from afterwit.message import Conversation, Message
from afterwit.store.database import Row
from afterwit.turn import ImportedTurn, RecordedTurn, Sampled, Sampling, Turn
from afterwit.verdict import Flag

T = TypeVar("T")

NOT_SAMPLED = dict.fromkeys(("prompt_ids", "sampling", "ids", "logprobs", "versions", "forced"), b"") | {
    "basis": ""
}
"""Columns of an imported turn."""


def read(kind: type[T], row: Row, **values: Any) -> T:
    """A data class or named tuple with these values; its other fields are the columns of the same names.

    Columns of booleans and enums are converted.
    """
    columns = _columns(kind)  # type: ignore[arg-type]  # a class can be hashed
    for name, convert in columns:
        if name not in values:
            values[name] = row[name] if convert is None else convert(row[name])
    return kind(**values)


@cache
def _columns(kind: Any) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    return tuple((name, _converter(hint)) for name, hint in get_type_hints(kind).items())


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    if NoneType in get_args(hint):
        convert = _converter(*(kind for kind in get_args(hint) if kind is not NoneType))
        return convert and (lambda value: None if value is None else convert(value))
    if hint is bool or (isinstance(hint, type) and issubclass(hint, Enum)):
        return hint
    return None


def columns_of(noun: Any, *, but: Sequence[str] = ()) -> dict[str, Any]:
    """The inverse of `read`: the fields of a data class by name."""
    return {each.name: getattr(noun, each.name) for each in fields(noun) if each.name not in but}


def identity_columns(turn: RecordedTurn) -> dict[str, Any]:
    """The part of the row of `turns` that the turn itself decides."""
    return {
        "id": turn.id,
        "scope": turn.scope,
        "session": turn.session,
        "parent": turn.parent,
        "kind": turn.kind.value,
        "created": turn.created,
        "oldest_version": turn.sampled.oldest_version if isinstance(turn, Turn) else 0,
        "imported": int(not isinstance(turn, Turn)),
    }


def content_columns(turn: RecordedTurn) -> dict[str, Any]:
    """The row of `contents`, without `seq`."""
    conversation = turn.conversation.to_dict()
    return {
        "model": turn.model,
        # tools first, messages last: turns of a session share their beginnings
        "conversation": orjson.dumps({"tools": conversation.pop("tools"), **conversation}),
        **(_sampled_columns(turn) if isinstance(turn, Turn) else NOT_SAMPLED),
        "message": orjson.dumps(turn.message.to_dict()),
        "finish": turn.finish.value,
        "teaches": int(turn.teaches),
    }


def _sampled_columns(turn: Turn) -> dict[str, Any]:
    sampled = turn.sampled
    return {
        "prompt_ids": pack_ids(turn.prompt_ids),
        "sampling": orjson.dumps(turn.sampling),
        "ids": pack_ids(sampled.ids),
        "logprobs": pack_floats(sampled.logprobs),
        "versions": pack_runs(sampled.versions),
        "forced": pack_flags(sampled.forced),
        "basis": sampled.basis.value,
        "cache_version": sampled.cache_version,
    }


def read_turn(row: Row, whole: Mapping[str, bytes]) -> RecordedTurn:
    """From a row of `turns` joined with `contents`, and the whole values of the delta columns."""
    common = {
        "conversation": Conversation.from_dict(orjson.loads(whole["conversation"])),
        "message": unpack_message(row["message"]),
    }
    if row["imported"]:
        return read(ImportedTurn, row, **common)
    sampled = read(
        Sampled,
        row,
        ids=unpack_ids(row["ids"]),
        logprobs=unpack_floats(row["logprobs"]),
        versions=unpack_runs(row["versions"]),
        forced=unpack_flags(row["forced"]),
    )
    prompt_ids, sampling = unpack_ids(whole["prompt_ids"]), _read_sampling(row["sampling"])
    return read(Turn, row, **common, prompt_ids=prompt_ids, sampling=sampling, sampled=sampled)


def _read_sampling(data: bytes) -> Sampling:
    fields = orjson.loads(data)
    fields["stop"] = tuple(fields["stop"])
    fields["stop_ids"] = tuple(fields["stop_ids"])
    fields["logit_bias"] = tuple((token, bias) for token, bias in fields["logit_bias"])
    return Sampling(**fields)


def unpack_message(data: bytes) -> Message:
    return Message.from_dict(orjson.loads(data))


def pack_messages(messages: Sequence[Message]) -> bytes:
    return orjson.dumps([message.to_dict() for message in messages])


def unpack_messages(data: bytes | None) -> tuple[Message, ...]:
    return tuple(Message.from_dict(message) for message in orjson.loads(data or b"[]"))


def read_flags(data: str | None) -> tuple[Flag, ...]:
    return tuple(Flag(flag) for flag in orjson.loads(data or "[]"))


def pack_ids(ids: Sequence[int]) -> bytes:
    """4 bytes per id. Raises struct.error past 32 bits."""
    return _pack("i", ids)


def _pack(form: str, values: Sequence[float]) -> bytes:
    return struct.Struct(f"<{len(values)}{form}").pack(*values)  # `struct.pack` would copy a tuple first


def unpack_ids(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}i", data)


def pack_floats(values: Sequence[float]) -> bytes:
    """4 bytes per value: rounded to float32, which is what engines report."""
    return _pack("f", values)


def unpack_floats(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def pack_runs(values: Sequence[int]) -> bytes:
    """(value, length) pairs: one pair for a response that one version sampled."""
    if values and values.count(values[0]) == len(values):
        return pack_ids((values[0], len(values)))
    return pack_ids([number for value, run in groupby(values) for number in (value, len(tuple(run)))])


def unpack_runs(data: bytes) -> tuple[int, ...]:
    pairs = unpack_ids(data)
    return tuple(value for value, length in zip(pairs[::2], pairs[1::2], strict=True) for _ in range(length))


def pack_flags(flags: Sequence[bool]) -> bytes:
    """One byte per flag."""
    return bytes(flags)


def unpack_flags(data: bytes) -> tuple[bool, ...]:
    return tuple(map(bool, data))
