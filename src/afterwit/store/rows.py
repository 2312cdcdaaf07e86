"""Converts turns, verdicts and versions to columns and back. Stores once what a turn shares with its parent.

A turn's columns hold plain Python types: drivers adapt subclasses, such as enums, value by value.

Prefix deltas: a turn stores of its conversation and prompt ids only what its parent does not have. Both grow
with a session. A row of `contents` refers to an older row as its `base`, with the number of bytes of each
value that both share. The bases form a chain, whose last row stores its values whole.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache
from itertools import groupby
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import orjson

from afterwit.byte_cache import ByteCache, exact
from afterwit.errors import StoreError
from afterwit.lifecycle import Reason, State
from afterwit.store.database import Database, Row, marks
from afterwit.text import prefix_length
from afterwit.turn import Conversation, Message, RecordedTurn, Sampled, Sampling, Turn, adapter_of

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


def first_columns(turn: RecordedTurn, *, waits: State, reason: Reason | None, now: float) -> dict[str, Any]:
    """The row of `turns` but for its binding: the turn's own part, and that it waits, or why it ended."""
    return {
        "id": turn.id,
        "scope": turn.scope,
        "session": turn.session,
        "parent": turn.parent,
        "kind": turn.kind.value,
        "created": turn.created,
        "oldest_version": turn.sampled.oldest_version if isinstance(turn, Turn) else 0,
        "imported": int(not isinstance(turn, Turn)),
        "adapter": adapter_of(turn),
        "state": (waits if reason is None else State.SKIPPED).value,
        "reason": None if reason is None else reason.value,
        "moved_at": now,
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
        return read(RecordedTurn, row, conversation=conversation)
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


_SAID = re.compile(rb'\{"role":"(\w+)","content":(?:null|("[^"\\]*(?:\\.[^"\\]*)*"))', re.DOTALL)


def last_said(conversation: bytes) -> list[str]:
    """The users' words after the last answer in a stored conversation; its last delta suffices.

    Only texts are read as JSON, so that it takes time in proportion to the bytes.
    """
    said = list[str]()
    for role, text in _SAID.findall(conversation):
        if role == b"assistant":
            said.clear()
        elif role == b"user" and text:
            said.append(orjson.loads(text))
    return said


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


DELTAS = ("conversation", "prompt_ids")
"""Columns of `contents`; `..._shared` is the number of bytes shared with the base."""

LEAST_SHARED = 1024
"""Bytes. Sharing fewer is not worth another row to read."""

MOST_CACHED_BYTES = 32 << 20
"""Of values: the newest turns of 150 sessions of 25,000 tokens."""

Whole = Mapping[str, bytes]


class _Written(NamedTuple):
    whole: Whole
    digest: hashlib.blake2b
    """Of the prompt ids: a child's goes on where it ends."""


class DeltaWriter:
    """Inserts turns. The newest values stay in memory, because a session's next turn builds on them."""

    def __init__(self, database: Database) -> None:
        self._db = database
        # by `seq`, id and digest: a number is reused if the newest turns were deleted
        self._written = ByteCache(self._read, most_bytes=MOST_CACHED_BYTES, size=_bytes)

    def add(self, columns: Mapping[str, Any], content: dict[str, Any], *, parent: str | None) -> None:
        """Insert a row as a delta to its parent's, if that is stored."""
        whole, before, base = {name: content[name] for name in DELTAS}, None, None
        if parent is not None:
            sql = "SELECT seq, id, prompt_digest FROM turns JOIN contents USING (seq) WHERE id = ?"
            base = self._db.row(sql, (parent,))
            before = None if base is None else self._written(tuple(base))
        shared = {
            name: 0 if before is None else prefix_length(whole[name], before.whole[name]) for name in DELTAS
        }
        ids, same = whole["prompt_ids"], shared["prompt_ids"]
        if before is not None and same == len(before.whole["prompt_ids"]):  # just the new ones are read
            digest = before.digest.copy()
            digest.update(ids[same:])
        else:
            digest = hashlib.blake2b(ids, digest_size=16)
        content["prompt_digest"] = digest.digest()
        if base is not None and sum(shared.values()) >= LEAST_SHARED:
            content |= _delta(base["seq"], shared, whole)
        seq = self._db.add(columns, content)
        kept = {name: exact(value) for name, value in whole.items()}
        self._written.keep((seq, columns["id"], content["prompt_digest"]), _Written(kept, digest))

    def _read(self, base: tuple[Any, ...]) -> _Written:
        whole = whole_values(self._db, base[:1])[base[0]]
        return _Written(whole, hashlib.blake2b(whole["prompt_ids"], digest_size=16))


def _bytes(base: tuple[Any, ...], written: _Written) -> int:
    return sum(map(len, written.whole.values()))


def _delta(base: int | None, shared: Mapping[str, int], whole: Whole) -> dict[str, Any]:
    """The columns of a row that shares these bytes with its base."""
    rest = {name: whole[name][shared[name] :] for name in DELTAS}
    return {"base": base, **rest, **{f"{name}_shared": shared[name] for name in DELTAS}}


def whole_values(database: Database, seqs: Collection[int]) -> dict[int, dict[str, bytes]]:
    """The whole values by row; rows that are not stored are left out."""
    rows = _chains(database, seqs)
    return {seq: {name: _whole(database, rows, seq, name) for name in DELTAS} for seq in seqs if seq in rows}


def _chains(database: Database, seqs: Collection[int]) -> dict[int, Row]:
    """These rows and all that they build on, as of one moment."""
    columns = ", ".join(f"c.{name}, c.{name}_shared" for name in DELTAS)
    rows = database.rows(
        f"WITH RECURSIVE needed(seq) AS (SELECT seq FROM contents WHERE seq IN ({marks(len(seqs))}) UNION"
        " SELECT c.base FROM needed JOIN contents c USING (seq) WHERE c.base IS NOT NULL)"
        f" SELECT c.seq, c.base, {columns} FROM needed JOIN contents c USING (seq)",
        tuple(seqs),
    )
    return {row["seq"]: row for row in rows}


def _whole(database: Database, rows: Mapping[int, Row], seq: int, name: str) -> bytes:
    """Joined from the end: each row contributes what the rows after it did not replace."""
    row = rows[seq]
    parts, left = [row[name]], row[f"{name}_shared"]
    while left:
        if row["base"] not in rows:
            raise StoreError(f"{database.place} is damaged: row {row['seq']} needs row {row['base']}.")
        row = rows[row["base"]]
        shared = row[f"{name}_shared"]
        if left > shared:
            parts.append(row[name][: left - shared])
            left = shared
    return b"".join(reversed(parts))


def detach(database: Database, removed: Sequence[int]) -> None:
    """Before rows are deleted: rebase the rows that build on them."""
    here = marks(len(removed))
    staying = database.rows(
        f"SELECT seq FROM contents WHERE base IN ({here}) AND seq NOT IN ({here})", (*removed, *removed)
    )
    rows, gone = _chains(database, [row["seq"] for row in staying]), set(removed)
    for (seq,) in staying:
        row = rows[seq]
        shared = {name: row[f"{name}_shared"] for name in DELTAS}
        while row["base"] in gone:
            row = rows[row["base"]]
            shared = {name: min(shared[name], row[f"{name}_shared"]) for name in DELTAS}
        columns = _delta(row["base"], shared, {name: _whole(database, rows, seq, name) for name in DELTAS})
        changes = ", ".join(f"{name} = ?" for name in columns)
        database.execute(f"UPDATE contents SET {changes} WHERE seq = ?", (*columns.values(), seq))
