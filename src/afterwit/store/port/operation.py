"""The health of the stages, and API keys."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from afterwit.store.records import Key, Status


class Statuses(Protocol):
    """The newest status of each stage, and of each machine if the store is shared.

    An alarm stays until the stage reports that it works again, or another machine reports of the stage and
    this one has not for a week.
    """

    def set_status(self, stage: str, ok: bool, message: str, *, now: float) -> None: ...

    def statuses(self) -> list[Status]:
        """By the stage's name, then the machine's."""
        ...


class Keys(Protocol):
    """API keys, each by its hash. A revoked key stays in the list until its name is given to a new one."""

    def add_key(self, name: str, scopes: Collection[str], hash: str, *, now: float) -> None:
        """Raises StoreError if the hash is taken, or the name by a key that is not revoked."""
        ...

    def keys(self) -> list[Key]:
        """All of them, revoked ones included, oldest first."""
        ...

    def revoke_key(self, name: str, *, now: float) -> None:
        """Raises StoreError for an unknown name. A second revocation keeps the time of the first."""
        ...
