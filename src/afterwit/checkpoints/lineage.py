"""Which updates a version's weights hold, through updates and rollbacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from afterwit.core.version import Origin, Version


def learned(number: int, versions: Mapping[int, Version]) -> frozenset[int]:
    """The update versions whose steps are in the weights of `number`."""
    found: set[int] = set()
    at: int | None = number
    while at is not None and at in versions:
        version = versions[at]
        if version.origin is Origin.UPDATE:
            found.add(at)
        at = version.restores if version.origin is Origin.ROLLBACK else version.parent
    return frozenset(found)


def taken_back(target: int, versions: Sequence[Version]) -> tuple[int, ...]:
    """The updates that a rollback to `target` reverts: in the newest weights, not in its own."""
    by_number = {version.number: version for version in versions}
    newest = max(by_number)
    return tuple(sorted(learned(newest, by_number) - learned(target, by_number)))
