"""What grows with a session, the conversation and the prompt's ids: each turn stores what its parent has not.

A turn's row names a `base`, an older row, and how many bytes of each value it shares with the base's. The
bases of a row form a chain, whose last row stores its values whole. A base is never younger than its rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from afterwit.byte_cache import Kept
from afterwit.errors import StoreError
from afterwit.store.sql.database import Database, Row, marks

GROWING = ("conversation", "prompt_ids")
"""Columns of `contents`. Each has a column of shared bytes beside it."""


LEAST_SHARED = 1024
"""Bytes. Sharing fewer is not worth another row to read."""


MOST_KEPT_BYTES = 32 << 20
"""Of values: the newest turns of 150 sessions of 25,000 tokens."""


Whole = Mapping[str, bytes]
"""The whole values of a turn's growing columns."""


class Written(NamedTuple):
    """What a row's next ones build on."""

    whole: Whole
    digest: hashlib.blake2b
    """Of the prompt's ids: goes on where they end."""


class Base(NamedTuple):
    """A row, as nobody can mistake it for another."""

    seq: int
    turn: str
    """A number is given again if the newest turns were deleted."""
    prompt_digest: bytes | None


class GrowingColumns:
    """Writes the growing columns. The newest values stay in memory: a session's next turn builds on them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._written = Kept(self._read, most_bytes=MOST_KEPT_BYTES, size=_bytes)

    def add(self, columns: Mapping[str, Any], content: dict[str, Any], *, parent: str | None) -> None:
        """Insert a row: of its growing values what comes behind those of its parent, if they are stored."""
        whole = {name: content[name] for name in GROWING}
        base = _stored(self._database, parent)
        before = None if base is None else self._written(base)
        shared = {name: 0 if before is None else _common(whole[name], before.whole[name]) for name in GROWING}
        digest = _digest(whole["prompt_ids"], shared["prompt_ids"], before)
        content["prompt_digest"] = digest.digest()
        if base is not None and sum(shared.values()) >= LEAST_SHARED:
            content |= _behind(base.seq, shared, whole)
        seq = self._database.add(columns, content)
        self._written.keep(Base(seq, columns["id"], content["prompt_digest"]), Written(whole, digest))

    def _read(self, base: Base) -> Written:
        whole = whole_values(self._database, (base.seq,))[base.seq]
        return Written(whole, _digest(whole["prompt_ids"], 0, None))


def _digest(ids: bytes, shared: int, before: Written | None) -> hashlib.blake2b:
    """Of packed ids; of a prompt that only goes on, no more than what is new is read."""
    if before is None or shared < len(before.whole["prompt_ids"]):
        return hashlib.blake2b(ids, digest_size=16)
    digest = before.digest.copy()
    digest.update(ids[shared:])
    return digest


def _bytes(base: Base, written: Written) -> int:
    return sum(map(len, written.whole.values()))


def whole_values(database: Database, seqs: Collection[int]) -> dict[int, dict[str, bytes]]:
    """The growing columns' whole values by row; rows that are not stored (any more) are left out."""
    rows = _chains(database, seqs)
    return {seq: {name: _whole(database, rows, seq, name) for name in GROWING} for seq in seqs if seq in rows}


def detach(database: Database, removed: Sequence[int]) -> None:
    """Make the rows that stay independent of those that will be removed."""
    here = marks(len(removed))
    staying = database.rows(
        f"SELECT seq FROM contents WHERE base IN ({here}) AND seq NOT IN ({here})", (*removed, *removed)
    )
    rows, gone = _chains(database, [row["seq"] for row in staying]), set(removed)
    for (seq,) in staying:
        whole = {name: _whole(database, rows, seq, name) for name in GROWING}
        columns = _behind(*_beyond(rows, seq, gone), whole)
        fields = ", ".join(f"{name} = ?" for name in columns)
        database.execute(f"UPDATE contents SET {fields} WHERE seq = ?", (*columns.values(), seq))


def _behind(base: int | None, shared: Mapping[str, int], whole: Whole) -> dict[str, Any]:
    """The columns of a row that stores its values behind what it shares with the base."""
    rest = {name: whole[name][shared[name] :] for name in GROWING}
    return {"base": base, **rest, **{f"{name}_shared": shared[name] for name in GROWING}}


def _beyond(rows: Mapping[int, Row], seq: int, gone: Collection[int]) -> tuple[int | None, dict[str, int]]:
    """The first row of a chain that stays, and what is shared with it; None and nothing if none does."""
    row = rows[seq]
    shared = {name: row[f"{name}_shared"] for name in GROWING}
    while row["base"] in gone:
        row = rows[row["base"]]
        shared = {name: min(shared[name], row[f"{name}_shared"]) for name in GROWING}
    return row["base"], shared


def _stored(database: Database, turn: str | None) -> Base | None:
    """The row of a turn; None if its content is not stored."""
    if turn is None:
        return None
    row = database.row(
        "SELECT seq, id, prompt_digest FROM turns JOIN contents USING (seq) WHERE id = ?", (turn,)
    )
    return None if row is None else Base(*row)


def _chains(database: Database, seqs: Collection[int]) -> dict[int, Row]:
    """These rows and all that they build on, as of one moment."""
    if not seqs:
        return {}
    columns = ", ".join(f"c.{name}, c.{name}_shared" for name in GROWING)
    rows = database.rows(
        f"WITH RECURSIVE needed(seq) AS (VALUES {', '.join('(?)' for _ in seqs)} UNION"
        " SELECT c.base FROM needed JOIN contents c USING (seq) WHERE c.base IS NOT NULL)"
        f" SELECT c.seq, c.base, {columns} FROM needed JOIN contents c USING (seq)",
        tuple(seqs),
    )
    return {row["seq"]: row for row in rows}


def _whole(database: Database, rows: Mapping[int, Row], seq: int, name: str) -> bytes:
    """A value, put together from the end: of each row what the row before did not reach back over."""
    row = rows[seq]
    pieces, left = [row[name]], row[f"{name}_shared"]
    while left:
        if row["base"] not in rows:
            raise StoreError(f"{database.place} is damaged: row {row['seq']} needs row {row['base']}.")
        row = rows[row["base"]]
        shared = row[f"{name}_shared"]
        if left > shared:
            pieces.append(row[name][: left - shared])
            left = shared
    return b"".join(reversed(pieces))


def _common(one: bytes, other: bytes) -> int:
    """Length of the longest beginning that both have."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
