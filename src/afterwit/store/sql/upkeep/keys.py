"""The port's `Keys` in SQL."""

from __future__ import annotations

from collections.abc import Collection

from afterwit.core.errors import StoreError
from afterwit.store.records import Key
from afterwit.store.sql.component import Component
from afterwit.store.sql.database import Row


class SqlKeys(Component):
    def add_key(self, name: str, scopes: Collection[str], hash: str, *, now: float) -> None:
        with self._database.alone():
            taken = "SELECT 1 FROM keys WHERE hash = ? OR (name = ? AND revoked IS NULL)"
            if self._database.row(taken, (hash, name)):
                raise StoreError(f"there is a key {name!r} already: choose another name")
            self._database.execute("DELETE FROM keys WHERE name = ?", (name,))
            row = {"name": name, "scopes": " ".join(sorted(scopes)), "hash": hash, "created": now}
            self._database.insert("keys", row)

    def keys(self) -> list[Key]:
        return [_key(row) for row in self._database.rows("SELECT * FROM keys ORDER BY created, name")]

    def revoke_key(self, name: str, *, now: float) -> None:
        with self._database.alone():
            known = self._database.execute(
                "UPDATE keys SET revoked = coalesce(revoked, ?) WHERE name = ?", (now, name)
            )
            if not known:
                raise StoreError(f"there is no key {name!r}")


def _key(row: Row) -> Key:
    return Key(
        name=row["name"],
        scopes=frozenset(row["scopes"].split()),
        hash=row["hash"],
        created=row["created"],
        revoked=row["revoked"],
    )
