"""Keeping the store within its limits, and putting failed turns back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from afterwit.core.lifecycle import Reason
from afterwit.store.records import Pruned


class Retention(Protocol):
    """Turns that wait are never removed. A trained turn leaves behind what its version's count needs."""

    def expire_open(self, older_than: float, *, now: float) -> int:
        """Skip OPEN turns created before `older_than`, and return how many. A late reply reopens them."""
        ...

    def prune(
        self, *, now: float, max_age_s: float | None, max_bytes: int | None, limit: int = 2048
    ) -> Pruned:
        """Remove ended turns older than `max_age_s`, and what the suite holds of turns that old; then the
        oldest turns until the rest is within `max_bytes`.

        None: no such limit. At most `limit` turns a call: call again for more. What was removed cannot be
        read back from the store's files, unless another process still reads an older state of them.
        """
        ...

    def size(self) -> int:
        """Bytes in use. Room that pruning freed and new turns will take does not count."""
        ...

    def requeue(self, turns: Sequence[str] | None = None, *, reason: Reason | None = None, now: float) -> int:
        """Put skipped turns back where their step failed, and return how many.

        Of `turns` (None: of all) those that failed, or only those with `reason`. A turn that was rolled back
        returns only if it is named itself.
        """
        ...
