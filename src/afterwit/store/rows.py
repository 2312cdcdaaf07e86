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
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import orjson

from afterwit.store.database import Row
from afterwit.turn import Conversation, ImportedTurn, Message, RecordedTurn, Sampled, Sampling, Turn

T = TypeVar("T")

Convert = Callable[[Any], Any]


def read(kind: type[T], row: Row, **values: Any) -> T:
    """A data class or named tuple with these values; its other fields are the columns of the same names.

    Columns of booleans and enums are converted, and those of tuples, mappings and classes with `from_dict`
    are read as JSON. A tuple without a value is empty.
    """
    columns = _columns(kind)  # type: ignore[arg-type]  # a class can be hashed
    for name, convert in columns:
        if name not in values:
            values[name] = row[name] if convert is None else convert(row[name])
    return kind(**values)


@cache
def _columns(kind: Any) -> tuple[tuple[str, Convert | None], ...]:
    return tuple((name, _converter(hint)) for name, hint in get_type_hints(kind).items())


def _converter(hint: Any) -> Convert | None:
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if NoneType in get_args(hint):
        convert = _converter(kinds[0])
        return convert and (lambda value: None if value is None else convert(value))
    if get_origin(hint) is tuple:
        part = getattr(kinds[0], "from_dict", None) or _converter(kinds[0]) or (lambda value: value)
        return lambda value: tuple(map(part, orjson.loads(value or b"[]")))
    if get_origin(hint) is Mapping:
        return orjson.loads
    if hasattr(hint, "from_dict"):
        return lambda value: hint.from_dict(orjson.loads(value))
    return hint if hint is bool or (isinstance(hint, type) and issubclass(hint, Enum)) else None


def columns_of(noun: Any, *, but: Sequence[str] = ()) -> dict[str, Any]:
    """The inverse of `read` for plain columns: the fields of a data class by name."""
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
    row = {
        "model": turn.model,
        # tools first, messages last: turns of a session share their beginnings
        "conversation": orjson.dumps({"tools": conversation.pop("tools"), **conversation}),
        "message": orjson.dumps(turn.message.to_dict()),
        "finish": turn.finish.value,
        "teaches": int(turn.teaches),
    }
    if not isinstance(turn, Turn):
        return row | dict.fromkeys(("prompt_ids", "sampling", *PACKED), b"") | {"basis": ""}
    for name, (pack, _) in PACKED.items():
        row[name] = pack(getattr(turn.sampled, name))
    return row | {
        "prompt_ids": pack_ids(turn.prompt_ids),
        "sampling": orjson.dumps(turn.sampling),
        "basis": turn.sampled.basis.value,
        "cache_version": turn.sampled.cache_version,
    }


def read_turn(row: Row, whole: Mapping[str, bytes]) -> RecordedTurn:
    """From a row of `turns` joined with `contents`, and the whole values of the delta columns."""
    conversation = Conversation.from_dict(orjson.loads(whole["conversation"]))
    if row["imported"]:
        return read(ImportedTurn, row, conversation=conversation)
    known = orjson.loads(row["sampling"])
    known |= {name: tuple(known[name]) for name in ("stop", "stop_ids")}
    known["logit_bias"] = tuple((token, bias) for token, bias in known["logit_bias"])
    return read(
        Turn,
        row,
        conversation=conversation,
        prompt_ids=unpack_ids(whole["prompt_ids"]),
        sampling=Sampling(**known),
        sampled=read(Sampled, row, **{name: unpack(row[name]) for name, (_, unpack) in PACKED.items()}),
    )


def unpack_message(data: bytes) -> Message:
    return Message.from_dict(orjson.loads(data))


def pack_ids(ids: Sequence[int]) -> bytes:
    """4 bytes per id. Raises struct.error past 32 bits."""
    return struct.Struct(f"<{len(ids)}i").pack(*ids)  # `struct.pack` would copy a tuple first


def unpack_ids(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}i", data)


def pack_floats(values: Sequence[float]) -> bytes:
    """4 bytes per value: rounded to float32, which is what engines report."""
    return struct.Struct(f"<{len(values)}f").pack(*values)


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


def unpack_flags(data: bytes) -> tuple[bool, ...]:
    """One byte per flag, as `bytes` packs them."""
    return tuple(map(bool, data))


PACKED: Mapping[str, tuple[Callable[[Any], bytes], Convert]] = {
    "ids": (pack_ids, unpack_ids),
    "logprobs": (pack_floats, unpack_floats),
    "versions": (pack_runs, unpack_runs),
    "forced": (bytes, unpack_flags),
}
"""Columns that hold a value for each sampled token."""
