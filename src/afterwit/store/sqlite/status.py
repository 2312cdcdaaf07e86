"""How each stage is, for /readyz, the doctor and the log; and who may call."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from afterwit.core.errors import StoreError
from afterwit.store.rows import Key, Status
from afterwit.store.sqlite.component import Component


class Statuses(Component):
    """The newest word of each stage; an alarm stands until the stage says that all is well."""

    def set_status(self, stage: str, ok: bool, message: str, *, now: float) -> None:
        with self._database.transaction():
            row = {"stage": stage, "ok": ok, "message": message, "at": now}
            self._database.insert("statuses", row, replace=True)

    def statuses(self) -> list[Status]:
        rows = self._database.rows("SELECT * FROM statuses ORDER BY stage")
        return [Status(stage=r["stage"], ok=bool(r["ok"]), message=r["message"], at=r["at"]) for r in rows]


class Keys(Component):
    """API keys by their hash; a revoked key stays listed and its name taken."""

    def add_key(self, name: str, scopes: Collection[str], hash: str, *, now: float) -> None:
        """Raises StoreError where the name or the hash is taken."""
        with self._database.transaction():
            if self._database.row("SELECT 1 FROM keys WHERE name = ? OR hash = ?", (name, hash)):
                raise StoreError(f"there is a key {name!r} already: choose another name")
            row = {"name": name, "scopes": " ".join(sorted(scopes)), "hash": hash, "created": now}
            self._database.insert("keys", row)

    def key_by_hash(self, hash: str) -> Key | None:
        """None for an unknown or a revoked key."""
        row = self._database.row("SELECT * FROM keys WHERE hash = ? AND revoked IS NULL", (hash,))
        return None if row is None else _key(row)

    def keys(self) -> list[Key]:
        return [_key(row) for row in self._database.rows("SELECT * FROM keys ORDER BY created, name")]

    def revoke_key(self, name: str, *, now: float) -> None:
        """Raises StoreError for an unknown name; revoking twice keeps the first time."""
        with self._database.transaction():
            cursor = self._database.execute(
                "UPDATE keys SET revoked = coalesce(revoked, ?) WHERE name = ?", (now, name)
            )
            if not cursor.rowcount:
                raise StoreError(f"there is no key {name!r}")


def _key(row: sqlite3.Row) -> Key:
    return Key(
        name=row["name"],
        scopes=frozenset(row["scopes"].split()),
        hash=row["hash"],
        created=row["created"],
        revoked=row["revoked"],
    )
