"""What has to be done so that no weights hold some turns any more. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from afterwit.checkpoints.lineage import learned, turns_in
from afterwit.core.version import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An update to run again, without the forgotten turns."""

    version: Version
    turns: tuple[str, ...]
    replayed: tuple[str, ...]
    whole: bool
    """Whether nothing was left out of it and of the updates before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where to begin, and what to run again behind it."""

    newest: int
    """The adapter's newest version: if another one comes, the plan is void."""
    start: int
    """The version whose weights and optimiser state come first."""
    steps: tuple[Step, ...]
    undone: tuple[int, ...]
    """All updates of the newest weights that `start` does not hold."""


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
    chain = sorted(learned(newest, by_number))
    kept = present.difference(turns)
    start, done = _start(chain, by_number, kept, resumes)
    before = {turn for number in chain[:done] for turn in _turns(by_number[number])}
    steps, whole = list[Step](), turns_in(start, by_number) == before
    for version in (by_number[number] for number in chain[done:]):
        whole = whole and kept >= set(_turns(version))
        if (step := _step(version, kept, whole=whole)) is not None:
            steps.append(step)
    return Plan(newest=newest, start=start, steps=tuple(steps), undone=tuple(chain[done:]))


def _turns(version: Version) -> tuple[str, ...]:
    return (*version.turns, *version.replayed)


def _start(
    chain: Sequence[int],
    versions: dict[int, Version],
    kept: Collection[str],
    resumes: Callable[[int], bool],
) -> tuple[int, int]:
    """The version that holds most of the chain's first updates, and nothing forgotten; and how many."""
    found = (0, 0)
    for number in sorted(versions):
        inside = learned(number, versions)
        fits = inside == set(chain[: len(inside)]) and turns_in(number, versions) <= set(kept)
        if fits and len(inside) >= found[1] and resumes(number):
            found = number, len(inside)
    return found


def _step(version: Version, kept: Collection[str], *, whole: bool) -> Step | None:
    new = tuple(turn for turn in version.turns if turn in kept)
    replayed = tuple(turn for turn in version.replayed if turn in kept)
    if not (new or replayed) or (version.turns and not new):
        return None
    return Step(version=version, turns=new, replayed=replayed, whole=whole)


def tainted(
    versions: Sequence[Version], holds: Callable[[int], bool], turns: Collection[str] = ()
) -> tuple[int, ...]:
    """Versions that hold a turn that was forgotten, or one of `turns`, and of which anything is kept."""
    by_number = {version.number: version for version in versions}
    gone = {turn for version in versions for turn in version.without}.union(turns)
    if not gone:
        return ()
    return tuple(number for number in by_number if holds(number) and gone & turns_in(number, by_number))
