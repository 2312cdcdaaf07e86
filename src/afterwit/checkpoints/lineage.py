"""Which updates a version's weights hold, through updates, rollbacks and replays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from afterwit.core.version import Origin, Version


def learned(number: int, versions: Mapping[int, Version]) -> frozenset[int]:
    """The update versions whose steps are in the weights of `number`."""
    found: set[int] = set()
    for version in _back(number, versions):
        if version.origin is Origin.UPDATE:
            found.add(version.number)
        found.update(version.replays)
    return frozenset(found)


def turns_in(number: int, versions: Mapping[int, Version]) -> frozenset[str]:
    """The turns that the weights of `number` were trained on."""
    steps = [versions[step] for step in learned(number, versions) if step in versions]
    trained = {turn for step in steps for turn in (*step.turns, *step.replayed)}
    return frozenset(trained.difference(*(version.without for version in _back(number, versions))))


def _back(number: int, versions: Mapping[int, Version]) -> Iterator[Version]:
    """The version, and those that its weights came from, the newest first."""
    at: int | None = number
    while at is not None and at in versions:
        version = versions[at]
        yield version
        source = {Origin.ROLLBACK: version.restores, Origin.REPLAY: version.begins}
        at = source.get(version.origin, version.parent)


def taken_back(target: int, versions: Sequence[Version]) -> tuple[int, ...]:
    """The updates that a rollback to `target` reverts: in the newest weights, not in its own. `versions` are
    those of one adapter."""
    return _less(max(version.number for version in versions), target, versions)


def brought_back(target: int, versions: Sequence[Version]) -> tuple[int, ...]:
    """The updates that a rollback to `target` brings back: in its weights, not in the newest."""
    return _less(target, max(version.number for version in versions), versions)


def _less(one: int, other: int, versions: Sequence[Version]) -> tuple[int, ...]:
    by_number = {version.number: version for version in versions}
    return tuple(sorted(learned(one, by_number) - learned(other, by_number)))
