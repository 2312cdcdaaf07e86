"""Weight versions: growing integers, each with its ancestor and what it learned from."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from afterwit.adapters import SHARED
from afterwit.promotion.suite import SuiteResult

AMPLIFIED = 64.0
"""Times that a probe takes an adapter. One update of SmolLM2-135M moves a log-prob by .01 on average, where
bfloat16 rounds by .05 and loses most of what an adapter adds; 64 times it moves by .6, of which nothing is
lost."""


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
    """The same with the version's adapter taken `AMPLIFIED` times: a step that half precision would hide
    shows. (): it has no adapter."""

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
    """What an update did to the response that it learned from.

    `before`, `after` and their like are the mean log-prob of the sampled tokens that train, in nats, at the
    temperature that they train at.
    """

    turn: str
    before: float
    """Under the weights that the update began with."""
    after: float | None
    """Under the weights that it made; None: this was not measured."""
    hinted_before: float | None = None
    """Of the teacher that was shown the hint, which the update pulled towards; None: no hint taught."""
    advantages: tuple[float, ...] = ()
    """Of each sampled token, how strongly the update pushed it up or down: the sum of the terms' advantages,
    each times its weight; 0 for a token that does not train. (): it was not kept."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From the JSON of its fields; anything else in it is left out."""
        known = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        return cls(**{**known, "advantages": tuple(data.get("advantages", ()))})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What an update read besides the turns that its manifest names: enough to run it again."""

    learner: Mapping[str, Any]
    """The learner's settings, by name."""
    objective: Mapping[str, Any]
    """The objective's settings, by name, with the brake that was pulled."""
    placement: str
    """Where hints stood in prompts."""
    digests: Mapping[str, str]
    """Turn -> a digest of everything that the update read of it."""
    anew: bool = False
    """Whether it began without the optimiser's state of the version before it, which was kept nowhere."""
    groups: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Turn -> the rewards of its prompt's turns, if the baseline read them."""


def versions_between(older: int, newer: int, chain: Sequence[int]) -> int:
    """How many versions of an adapter, whose ascending numbers are `chain`, lie behind `older` up to `newer`.

    Negative if `older` is the newer one, as after a loss of versions.
    """
    if older > newer:
        return newer - older
    return bisect_right(chain, newer) - bisect_right(chain, older)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What a manifest holds. The manifest's atomic rename is the commit of an update."""

    number: int
    parent: int | None
    origin: Origin
    created: float
    turns: tuple[str, ...] = ()
    """Turns claimed as new: they are TRAINED because this manifest names them."""
    replayed: tuple[str, ...] = ()
    """Turns that had trained before and were trained on again."""
    restores: int | None = None
    """For a rollback: the version whose weights and optimiser state these are."""
    reverts: tuple[int, ...] = ()
    """For a rollback: the versions it takes back; the turns they trained are reverted."""
    returns: tuple[int, ...] = ()
    """For a rollback: the versions that it brings back, because an earlier one had taken them; the turns they
    trained are trained again."""
    probe: Probe
    files: dict[str, str] = field(default_factory=dict)
    """Hash of each file in the version's folder, by name; empty for the base."""
    metrics: dict[str, float] = field(default_factory=dict)
    recipe: Recipe | None = None
    """For an update of the store's turns: how to run it again."""
    begins: int | None = None
    """For a replay: the version that it began with."""
    replays: tuple[int, ...] = ()
    """For a replay: the updates that it ran again behind that one, in order."""
    forgets: tuple[str, ...] = ()
    """Sessions whose content and whose part in the weights ends with this version."""
    without: tuple[str, ...] = ()
    """The turns of these sessions, and of those forgotten before, that had been trained on: no weights may
    hold them from here on."""
    effects: tuple[Effect, ...] = ()
    """What the update did to each of its new turns; (): it was not measured."""
    suite: SuiteResult | None = None
    """What an update lost of what people had approved; None: it was not asked."""
    adapter: str = SHARED
    """The adapter that it is a version of. Numbers are given once, whichever adapter takes them; the base is
    the first version of each."""
