"""A sample as the objectives see it: all of it but its logits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from afterwit.core.terms import Carried
from afterwit.objective.settings import ObjectiveSettings

Basis = Literal["processed", "raw"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One response and what was found out about it. Misaligned or empty samples cannot be built."""

    ids_T: Tensor
    """The sampled ids, int64."""
    mask_T: Tensor
    """True where a token trains; False where a grammar forced it."""
    behaviour_T: Tensor | None
    """log pi_b of the sampled ids; `None` means no off-policy correction."""
    basis: Basis = "processed"
    """Whether `behaviour_T` is after temperature and truncation, or of the raw logits."""
    tau: float
    """The temperature of every log-prob of this sample."""
    advantage: float | None
    """The RL advantage; `None` means no RL term."""
    hints: int
    """Teachers that will be shown; 0 means no OPD term."""
    hint_lengths: tuple[int, ...] | None = None
    """Characters of each hint, ascending; settles which of the longest is the first."""

    def __post_init__(self) -> None:
        tokens = len(self.ids_T)
        if len(self.mask_T) != tokens:
            raise ValueError(f"{tokens} ids but a mask of {len(self.mask_T)}")
        if self.behaviour_T is not None and len(self.behaviour_T) != tokens:
            raise ValueError(f"{tokens} ids but {len(self.behaviour_T)} log-probs")
        if self.ids_T.dtype != torch.int64 or self.mask_T.dtype != torch.bool:
            raise ValueError(f"ids are {self.ids_T.dtype} and mask {self.mask_T.dtype}, not int64 and bool")
        if not bool(self.mask_T.any()):
            raise ValueError(f"none of the {tokens} tokens trains")
        if self.basis not in get_args(Basis):
            raise ValueError(f"basis is {self.basis!r}, but must be one of {', '.join(get_args(Basis))}")
        if not self.tau > 0:
            raise ValueError(f"tau is {self.tau}, but must be above 0")
        if self.hint_lengths is not None and len(self.hint_lengths) != self.hints:
            raise ValueError(f"{self.hints} hints but {len(self.hint_lengths)} lengths")
        if self.hint_lengths is not None and list(self.hint_lengths) != sorted(self.hint_lengths):
            raise ValueError(f"hints come shortest first, but their lengths are {self.hint_lengths}")

    def carries(self, settings: ObjectiveSettings) -> list[str]:
        """The terms that its reward and its hints become under the objective."""
        rl, opd = self.advantage is not None, self.hints > 0
        carried = {"rl": rl, "opd": opd, "combine": settings.reads.moves(Carried(rl=rl, opd=opd))}
        return [term for term in settings.terms if carried[term]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """What each term is divided by: counts over the global batch, however it is split later."""

    counts: Mapping[str, int]

    def of(self, term: str) -> int:
        """A term's denominator. ValueError where it counts no sample: then none can carry the term."""
        if (count := self.counts[term]) < 1:
            raise ValueError(f"a sample carries {term}, but its denominator is {count}")
        return count


def denominators(samples: Iterable[Sample], settings: ObjectiveSettings) -> Denominators:
    """The denominators of a global batch."""
    batch = list(samples)
    counts = dict.fromkeys((*settings.terms, "entropy", "reference_kl"), len(batch))
    if settings.aggregation == "component":
        carried = [term for sample in batch for term in sample.carries(settings)]
        counts |= {term: carried.count(term) for term in settings.terms}
    return Denominators(counts=counts)
