"""A sample as the objectives see it: all of it but its logits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

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
        if not self.tau > 0:
            raise ValueError(f"tau is {self.tau}, but must be above 0")
        if self.hint_lengths is not None and len(self.hint_lengths) != self.hints:
            raise ValueError(f"{self.hints} hints but {len(self.hint_lengths)} lengths")


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """What each term is divided by: counts over the global batch, however it is split later."""

    rl: int
    opd: int
    samples: int
    memory: int


def denominators(samples: Iterable[Sample], settings: ObjectiveSettings, *, memory: int = 0) -> Denominators:
    """The denominators of a global batch with `memory` memory samples beside it."""
    batch = list(samples)
    if settings.aggregation == "batch":
        return Denominators(rl=len(batch), opd=len(batch), samples=len(batch), memory=memory)
    rl = sum(sample.advantage is not None for sample in batch)
    opd = sum(sample.hints > 0 for sample in batch)
    return Denominators(rl=rl, opd=opd, samples=len(batch), memory=memory)
