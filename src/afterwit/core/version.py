"""Weight versions: growing integers, each with its ancestor and what it learned from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from afterwit.core.promotion.suite import SuiteResult


class Origin(StrEnum):
    """How a version came to be."""

    BASE = "base"
    UPDATE = "update"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A fixed prompt and the learner's log-probs of its tokens 1.. under this version, at temperature 1."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.logprobs) != len(self.ids) - 1:
            needed = f"{len(self.ids)} probe ids need {len(self.ids) - 1} log-probs"
            raise ValueError(f"{needed}, not {len(self.logprobs)}")


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
    probe: Probe
    files: dict[str, str] = field(default_factory=dict)
    """Hash of each file in the version's folder, by name; empty for the base."""
    metrics: dict[str, float] = field(default_factory=dict)
    suite: SuiteResult | None = None
    """What an update lost of what people had approved; None: it was not asked."""
