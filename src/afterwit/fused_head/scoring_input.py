"""A sample with the hidden states that its target is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.objective.sample import Sample
from afterwit.objective.settings import ObjectiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringInput:
    """States of the student, and of its teachers if it has an OPD term."""

    sample: Sample
    states_TD: Tensor
    teachers: tuple[Tensor, ...] = ()
    """The teacher's states [T, its own width] after each hint, in their order; unread without an OPD term."""

    def __post_init__(self) -> None:
        for states_TD in (self.states_TD, *self.teachers):
            if len(states_TD) != len(self.sample.ids_T):
                raise ValueError(f"{len(self.sample.ids_T)} ids but {len(states_TD)} states")

    def has_opd(self, settings: ObjectiveSettings) -> bool:
        """Whether it has an OPD term. ValueError if a teacher is missing."""
        if not settings.has_opd or not self.sample.taught:
            return False
        if len(self.teachers) != self.sample.hints:
            raise ValueError(f"{self.sample.hints} hints but {len(self.teachers)} teachers")
        return True


def lengths(inputs: Sequence[ScoringInput]) -> list[int]:
    """T of each."""
    return [len(entry.states_TD) for entry in inputs]


def states(inputs: Sequence[ScoringInput]) -> Tensor:
    """All rows of the students [N, D], without a graph."""
    return torch.cat([entry.states_TD for entry in inputs]).detach()


def ids(inputs: Sequence[ScoringInput]) -> Tensor:
    """The sampled id of each row, [N, 1]."""
    return torch.cat([entry.sample.ids_T for entry in inputs]).unsqueeze(-1)


def taus(inputs: Sequence[ScoringInput]) -> Tensor:
    """The temperature of each row, [N], in fp64."""
    each = torch.tensor([entry.sample.tau for entry in inputs], dtype=torch.float64)
    return each.repeat_interleave(torch.tensor(lengths(inputs))).to(inputs[0].states_TD.device)
