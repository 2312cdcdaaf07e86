"""The updates and turns that the weights of a version hold, and how to free them of some turns. Pure.

Arguments `versions` are those of one adapter, unless a docstring names others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from afterwit.version import Origin, Version


def is_rung(number: int, *, newest: int) -> bool:
    """Whether a version is a rung of the ladder: one at each doubling of the distance from the newest. An
    adapter's versions count from 1 here, whatever their numbers.

    A number with z trailing zero bits stays while it is less than 2^(z + 1) behind. So about log2(newest)
    versions stay, and from any distance d back to 3 d there is one, or the base.
    """
    return newest - number < 2 * (number & -number)


def outdated(numbers: Sequence[int], *, keep: int, but: Collection[int]) -> list[int]:
    """Of an adapter's ascending numbers, those neither among the newest `keep`, nor in `but`, nor a rung."""
    own = [number for number in numbers if number > 0]
    older = enumerate(own[: max(0, len(own) - keep)], start=1)
    return [number for place, number in older if number not in but and not is_rung(place, newest=len(own))]


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
    """The updates that a rollback to `target` reverts: in the newest weights, not in its own."""
    by_number = {version.number: version for version in versions}
    return tuple(sorted(learned(max(by_number), by_number) - learned(target, by_number)))


def brought_back(target: int, versions: Sequence[Version]) -> tuple[int, ...]:
    """The updates that a rollback to `target` brings back: in its weights, not in the newest."""
    by_number = {version.number: version for version in versions}
    return tuple(sorted(learned(target, by_number) - learned(max(by_number), by_number)))


def tainted(
    versions: Sequence[Version], holds: Callable[[int], bool], turns: Collection[str] = ()
) -> tuple[int, ...]:
    """Versions that hold a turn that was forgotten, or one of `turns`, and of which anything is staying.
    `versions` may be of all adapters."""
    by_number = {version.number: version for version in versions}
    gone = {turn for version in versions for turn in version.without}.union(turns)
    return tuple(n for n in by_number if gone and holds(n) and gone & turns_in(n, by_number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An update to run again, without the forgotten turns."""

    version: Version
    turns: tuple[str, ...]
    replayed: tuple[str, ...]
    whole: bool
    """Whether nothing was left out, neither here nor in the updates before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The version to start from, and the updates to run again after it."""

    newest: int
    """The adapter's newest version: if another one comes, the plan is void."""
    start: int
    """The version whose weights and optimiser state come first."""
    steps: tuple[Step, ...]


def plan(versions: Sequence[Version], turns: Collection[str], resumes: Callable[[int], bool]) -> Plan | None:
    """How to free the newest weights of these turns; None: they do not hold any.

    It begins as late as possible with a version that `resumes`. An update all of whose new turns are
    forgotten is left out: without them it would not have begun.
    """
    by_number = {version.number: version for version in versions}
    newest = max(by_number, default=0)
    present = turns_in(newest, by_number)
    if not present.intersection(turns):
        return None
    staying = present.difference(turns)
    chain = sorted(learned(newest, by_number))
    start, done = 0, 0
    for number in sorted(by_number):
        inside = learned(number, by_number)
        fits = inside == set(chain[: len(inside)]) and turns_in(number, by_number) <= staying
        if fits and len(inside) >= done and resumes(number):
            start, done = number, len(inside)
    before = [by_number[number] for number in chain[:done]]
    whole = turns_in(start, by_number) == {turn for each in before for turn in (*each.turns, *each.replayed)}
    steps = list[Step]()
    for version in (by_number[number] for number in chain[done:]):
        whole = whole and staying.issuperset((*version.turns, *version.replayed))
        new = tuple(turn for turn in version.turns if turn in staying)
        replayed = tuple(turn for turn in version.replayed if turn in staying)
        if new or (replayed and not version.turns):
            steps.append(Step(version=version, turns=new, replayed=replayed, whole=whole))
    return Plan(newest=newest, start=start, steps=tuple(steps))
