"""A sample as the objectives see it, without its logits: its advantage, and what each term is divided by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple, Self, get_args

import torch
from torch import Tensor

from afterwit.objective.settings import AGGREGATIONS, BASELINES, ObjectiveSettings, Rewarded
from afterwit.turn import is_greedy, scoring_temperature
from afterwit.verdict import Carried

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
    teacher_rows: tuple[TeacherRows, ...] = ()
    """The rows of teachers that ran elsewhere, one per hint."""
    anchored: bool = True
    """Whether the KL to the reference counts it."""

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
        if self.teacher_rows and self.hints:
            raise ValueError(f"a teacher's rows are given, but {self.hints} teachers run")
        for rows in self.teacher_rows:
            if len(rows.ids_TK) != tokens:
                raise ValueError(f"{tokens} ids but {len(rows.ids_TK)} teacher's rows")
        if not self.tau > 0:
            raise ValueError(f"tau is {self.tau}, but must be above 0")

    @property
    def carried(self) -> Carried:
        """The terms that its reward and its hints can become."""
        return Carried(rl=self.advantage is not None, opd=self.taught)

    @property
    def taught(self) -> bool:
        """Whether a teacher scores it."""
        return self.hints > 0 or bool(self.teacher_rows)

    def mask_of(self, term: str) -> Tensor:
        """The tokens that a term is a mean over: in distillation by given rows, those that have one."""
        if term != "opd" or not self.teacher_rows:
            return self.mask_T
        return torch.stack([self.mask_T, *(rows.distilled_T for rows in self.teacher_rows)]).all(dim=0)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherRows:
    """Log-probs of a teacher over its whole vocabulary, at the sampled id and at a few ids of each token.

    Rows are padded to one width; a token that is not distilled has no valid id.
    """

    sampled_T: Tensor
    """At the sampled ids; where a token is not distilled, anything."""
    ids_TK: Tensor
    """int64; where it is padded, any id."""
    logprobs_TK: Tensor
    valid_TK: Tensor | None = None
    """False where the ids are padded; None: they are not."""
    asked_ids_TJ: Tensor | None = None
    """Other ids that the teacher was asked about; None: it was not."""
    asked_TJ: Tensor | None = None
    """Its log-probs of these."""

    def __post_init__(self) -> None:
        shapes = {tuple(each.shape) for each in (self.ids_TK, self.logprobs_TK, self._valid_TK)}
        if len(shapes) != 1:
            raise ValueError(f"ids, log-probs and validity have the shapes {sorted(shapes)}")
        if len(self.sampled_T) != len(self.ids_TK):
            raise ValueError(f"{len(self.sampled_T)} sampled ids but {len(self.ids_TK)} rows")
        if not bool(self.distilled_T.any()):
            raise ValueError("no token is distilled")

    @property
    def distilled_T(self) -> Tensor:
        """The tokens that have a row."""
        return self._valid_TK.any(dim=-1)

    @property
    def _valid_TK(self) -> Tensor:
        return torch.ones_like(self.ids_TK, dtype=torch.bool) if self.valid_TK is None else self.valid_TK

    def at(self, ids_TJ: Tensor) -> Tensor:
        """Its log-probs at other ids; NaN at ids that it did not score, so that they cannot be learned
        from."""
        found_TJ = _at(ids_TJ, self.ids_TK, self.logprobs_TK, self._valid_TK)
        if self.asked_ids_TJ is None or self.asked_TJ is None:
            return found_TJ
        told = torch.ones_like(self.asked_ids_TJ, dtype=torch.bool)
        asked_TJ = _at(ids_TJ, self.asked_ids_TJ, self.asked_TJ, told)
        return torch.where(found_TJ.isnan(), asked_TJ, found_TJ)


def _at(ids_TJ: Tensor, known_TK: Tensor, logprobs_TK: Tensor, valid_TK: Tensor) -> Tensor:
    """The log-probs of ids among the known ones, which differ from each other; NaN at all others."""
    same_TJK = (ids_TJ.unsqueeze(-1) == known_TK.unsqueeze(-2)) & valid_TK.unsqueeze(-2)
    found_TJ = torch.where(same_TJK, logprobs_TK.unsqueeze(-2), 0.0).sum(dim=-1)
    return torch.where(same_TJK.any(dim=-1), found_TJ, torch.nan)


Denominators = Mapping[str, int]
"""Term -> its count over the global batch, however that is split into micro-batches later."""


class Advantages(NamedTuple):
    """One advantage per sample (`None`: no RL term), and the running mean for the next update."""

    values: tuple[float | None, ...]
    mean: float


def advantages(
    batch: Sequence[Rewarded | None], settings: ObjectiveSettings, *, mean: float = 0.0
) -> Advantages:
    """The rewards of a global batch less their baseline; `None` for a sample without an RL term or signal.

    `mean` is the running mean before this batch; it starts at 0. ValueError if a reward is not finite.
    """
    carried = [sample for sample in batch if sample is not None]
    for sample in carried:
        if not all(map(math.isfinite, (sample.reward, *sample.group))):
            raise ValueError(f"a reward is {sample.reward} in a group of {list(sample.group)}: not finite")
    baseline = BASELINES[settings.baseline]
    values = tuple(None if sample is None else baseline.advantage(sample, mean) for sample in batch)
    if baseline.moves_mean and carried:
        rewards = fmean(sample.reward for sample in carried)
        mean = settings.baseline_decay * mean + (1 - settings.baseline_decay) * rewards
    return Advantages(values, mean)


def denominators(samples: Iterable[Sample], settings: ObjectiveSettings) -> Denominators:
    """The denominators of a global batch. Every sample carries entropy, each anchored one reference KL."""
    batch = list(samples)
    carried = [settings.terms_of(sample.carried) for sample in batch]
    every = {"entropy": len(batch), "reference_kl": sum(sample.anchored for sample in batch)}
    return {**every, **AGGREGATIONS[settings.aggregation](carried, settings.terms)}
