"""Prefix deltas: a turn stores of its conversation and prompt ids only what its parent does not have.

Both grow with a session. A row of `contents` refers to an older row as its `base`, with the number of
bytes of each value that both share. The bases form a chain, whose last row stores its values whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from afterwit.byte_cache import ByteCache
from afterwit.errors import StoreError
from afterwit.store.database import Database, Row, marks
from afterwit.text import exact

DELTAS = ("conversation", "prompt_ids")
"""Columns of `contents`; `..._shared` is the number of bytes shared with the base."""

LEAST_SHARED = 1024
"""Bytes. Sharing fewer is not worth another row to read."""

MOST_CACHED_BYTES = 32 << 20
"""Of values: the newest turns of 150 sessions of 25,000 tokens."""

Whole = Mapping[str, bytes]
"""The whole values of a row's delta columns."""


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
        shared = {name: 0 if before is None else _common(whole[name], before.whole[name]) for name in DELTAS}
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


def _common(one: bytes, other: bytes) -> int:
    """Length of the longest common prefix."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


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
    if not seqs:
        return {}
    columns = ", ".join(f"c.{name}, c.{name}_shared" for name in DELTAS)
    rows = database.rows(
        f"WITH RECURSIVE needed(seq) AS (VALUES {', '.join('(?)' for _ in seqs)} UNION"
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
