"""A sample as the objectives see it: everything but its logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from afterwit.core.terms import Carried
from afterwit.core.turn import is_greedy, scoring_temperature
from afterwit.objective.teacher_rows import TeacherRows

Basis = Literal["processed", "raw"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One response with its advantage and its hints. Misaligned or empty samples cannot be built."""

    ids_T: Tensor
    """The sampled ids, int64."""
    mask_T: Tensor
    """True for a token that trains; False for one that a grammar forced."""
    behaviour_T: Tensor | None
    """log pi_b of the sampled ids; `None`: no off-policy correction."""
    basis: Basis = "processed"
    """Whether `behaviour_T` is after temperature and truncation, or of the raw logits."""
    tau: float
    """The temperature of every log-prob of this sample."""
    advantage: float | None
    """The RL advantage; `None`: no RL term."""
    hints: int
    """Number of teachers that run; 0: no OPD term, unless a teacher's rows are given."""
    given: tuple[TeacherRows, ...] = ()
    """The rows of teachers that ran elsewhere, one per hint."""

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
        self._check_given()
        if not self.tau > 0:
            raise ValueError(f"tau is {self.tau}, but must be above 0")

    def _check_given(self) -> None:
        if self.given and self.hints:
            raise ValueError(f"a teacher's rows are given, but {self.hints} teachers run")
        for rows in self.given:
            if len(rows.ids_TK) != len(self.ids_T):
                raise ValueError(f"{len(self.ids_T)} ids but {len(rows.ids_TK)} teacher's rows")

    @property
    def carried(self) -> Carried:
        """Which terms its reward and its hints can become."""
        return Carried(rl=self.advantage is not None, opd=self.taught)

    @property
    def taught(self) -> bool:
        """Whether a teacher says something on it."""
        return self.hints > 0 or bool(self.given)

    def mask_of(self, term: str) -> Tensor:
        """The tokens that a term is a mean over: in distillation by given rows, those that have one."""
        if term != "opd" or not self.given:
            return self.mask_T
        return torch.stack([self.mask_T, *(rows.distilled_T for rows in self.given)]).all(dim=0)

    @classmethod
    def sampled_at(
        cls,
        temperature: float,
        *,
        behaviour_T: Tensor | None,
        basis: Basis,
        tau: float | None = None,
        **facts: object,
    ) -> Self:
        """A sample of this sampling temperature.

        A greedy one is scored at temperature 1 and has no off-policy correction: its pi_b has no
        probabilities. `tau`: the temperature that it is scored at in place of its own; the correction then
        needs a pi_b that is of this one, or raw.
        """
        tau = scoring_temperature(temperature) if tau is None else tau
        comparable = not is_greedy(temperature) and (basis == "raw" or temperature == tau)
        return cls(
            tau=tau,
            behaviour_T=behaviour_T if comparable else None,
            basis=basis,
            **facts,  # type: ignore[arg-type]
        )
