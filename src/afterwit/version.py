"""Weight versions: growing integers, each with its ancestor and what it learned from. Pure.

Below them is what the weights of a version hold: the updates and turns of all that it came from. There
`versions` are those of one adapter, unless a docstring names others.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from afterwit.turn import SHARED

AMPLIFIED = 64.0
"""Factor on the adapter in a probe. One update of SmolLM2-135M moves a log-prob by .01 on average, where
bfloat16 rounds by .05 and loses most of what an adapter adds; amplified, it moves by .6, which survives."""


class Origin(StrEnum):
    """How a version came to be."""

    BASE = "base"
    UPDATE = "update"
    ROLLBACK = "rollback"
    REPLAY = "replay"
    """Updates run again, without the turns of a forgotten session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A fixed prompt and the learner's log-probs of its tokens 1.. under this version, at temperature 1."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    amplified: tuple[float, ...] = ()
    """The same with the version's adapter multiplied by `AMPLIFIED`, which shows a step that half precision
    would hide. (): the version has no adapter."""

    def __post_init__(self) -> None:
        for logprobs in (self.logprobs, self.amplified or self.logprobs):
            if len(logprobs) != len(self.ids) - 1:
                needed = f"{len(self.ids)} probe ids need {len(self.ids) - 1} log-probs"
                raise ValueError(f"{needed}, not {len(logprobs)}")

    @property
    def is_finite(self) -> bool:
        """Whether no log-prob is infinite or NaN."""
        return all(map(math.isfinite, (*self.logprobs, *self.amplified)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """How an update changed the response that it learned from.

    `before`, `after` and their like are the mean log-prob of the sampled tokens that train, in nats, at the
    temperature that they train at.
    """

    turn: str
    before: float
    """Under the weights before the update."""
    after: float | None
    """Under the weights after it; None: not measured."""
    hinted_before: float | None = None
    """Of the teacher, who saw the hint; None: no hint taught."""
    advantages: tuple[float, ...] = ()
    """Of each sampled token, the sum of the terms' advantages, each times its weight; 0 for a token that does
    not train. (): not stored."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From the JSON of its fields; unknown keys are ignored."""
        known = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        return cls(**{**known, "advantages": tuple(data.get("advantages", ()))})


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """How much of the suite a version lost."""

    lost: Mapping[str, tuple[int, int]]
    """By stratum, how many of how many items."""
    evidence: float
    """The mean e-value of the strata; 1 without items."""
    lost_turns: tuple[str, ...] = ()
    """The items that were lost."""
    length: float | None = None
    """Expected tokens of its items as a share of the approved tokens; None: not measured."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SuiteResult:
        """From the JSON of its fields."""
        return cls(
            lost={name: (lost, of) for name, (lost, of) in data["lost"].items()},
            evidence=data["evidence"],
            lost_turns=tuple(data["lost_turns"]),
            length=data.get("length"),
        )

    @property
    def worst(self) -> str | None:
        """The stratum that lost the greatest share; None if none lost anything."""
        shares = {name: lost / of for name, (lost, of) in self.lost.items() if lost}
        return max(shares, key=lambda name: shares[name], default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The inputs of an update besides its turns: enough to run it again."""

    learner: Mapping[str, Any]
    """The learner's settings, by name, with the learning rate that promotion backed off to."""
    objective: Mapping[str, Any]
    placement: str
    digests: Mapping[str, str]
    """Turn -> a digest of everything that the update read about it."""
    fresh_optimizer: bool = False
    """Whether it started a new optimiser, because the state of the version before it was not stored."""
    groups: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Turn -> the rewards of all turns with its prompt, if the baseline uses them."""


def versions_between(older: int, newer: int, chain: Sequence[int]) -> int:
    """The number of an adapter's versions after `older` up to `newer`. `chain`: all its numbers, ascending.

    Negative if `older` is the newer one, as after a loss of versions.
    """
    if older > newer:
        return newer - older
    return bisect_right(chain, newer) - bisect_right(chain, older)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The content of a manifest, whose atomic rename is the commit of an update."""

    number: int
    parent: int | None
    origin: Origin
    created: float
    """When the work on it began: an update takes minutes until its commit."""
    turns: tuple[str, ...] = ()
    """Turns claimed as new: they are TRAINED because this manifest names them."""
    replayed: tuple[str, ...] = ()
    """Turns that had trained before and were trained on again."""
    restores: int | None = None
    """For a rollback: the version whose weights and optimiser state these are."""
    reverts: tuple[int, ...] = ()
    """For a rollback: the versions it reverts, with the turns that they trained."""
    returns: tuple[int, ...] = ()
    """For a rollback: the versions that it restores after an earlier rollback reverted them; the turns they
    trained are TRAINED again."""
    probe: Probe
    files: dict[str, str] = field(default_factory=dict)
    """Hash of each file in the version's folder, by name; empty for the base."""
    metrics: dict[str, float] = field(default_factory=dict)
    recipe: Recipe | None = None
    """For an update of the store's turns: how to run it again."""
    begins: int | None = None
    """For a replay: the version that it started from."""
    replays: tuple[int, ...] = ()
    """For a replay: the updates that it ran again after that one, in order."""
    forgets: tuple[str, ...] = ()
    """Sessions that this version forgets: their content, and what the weights learned from them."""
    without: tuple[str, ...] = ()
    """The trained turns of these sessions, and of those forgotten before: later weights must not contain
    them."""
    effects: tuple[Effect, ...] = ()
    """Of the new turns; (): not measured."""
    suite: SuiteResult | None = None
    """How much of what people had approved the update lost; None: not measured."""
    adapter: str = SHARED
    """Its adapter. All adapters share one sequence of numbers; the base is the first version of each."""


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
