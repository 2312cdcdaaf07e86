"""The old policy and the teachers, reduced to K ids per position, for hint selection and distillation.

Every field separates by rows and by hints, so logits may come in chunks and one teacher at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from afterwit.objective.logprobs import at, logprobs, same_shape, top_k
from afterwit.objective.sample import Sample, TeacherRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The top-K of pi_old and of every teacher, each scored by the other. No gradient."""

    student_ids_TK: Tensor
    """The likeliest first."""
    student_old_TK: Tensor
    """log pi_old at the student's ids."""
    student_teacher_HTK: Tensor
    """log pi_T^h at the student's ids."""
    asked: bool = True
    """Whether the teachers were asked about the student's ids; else NaN is where they said nothing of one."""
    native_ids_HTK: Tensor
    """Each teacher's own top-K, the likeliest first."""
    native_teacher_HTK: Tensor
    """log pi_T^h at the teacher's ids."""
    sampled_teacher_HT: Tensor
    """log pi_T^h at the sampled ids."""
    old_at: Callable[[Tensor], Tensor]
    """log pi_old at any ids [T, K]."""
    native_valid_HTK: Tensor | None = None
    """False where the teacher's ids are padded; None: they are not."""

    @property
    def shared_HTK(self) -> Tensor:
        """Which of the student's ids are among the teacher's."""
        if not self.asked:
            return ~self.student_teacher_HTK.isnan()
        hints = len(self.native_ids_HTK)
        return shared(self.student_ids_TK.expand(hints, -1, -1), self.native_ids_HTK)

    @property
    def overlap_HT(self) -> Tensor:
        """How many of the student's ids are among the teacher's."""
        return self.shared_HTK.sum(dim=-1)

    def native_valid_TK(self, hint_T: Tensor) -> Tensor:
        """Which of the chosen hint's native ids are the teacher's."""
        if self.native_valid_HTK is None:
            return torch.ones_like(self.native_ids_HTK[0], dtype=torch.bool)
        return self.pick(self.native_valid_HTK, hint_T)

    def pick(self, values_HT: Tensor, hint_T: Tensor) -> Tensor:
        """The chosen hint's values: [H, T, ...] and [T] give [T, ...]."""
        return values_HT[hint_T, torch.arange(len(hint_T), device=hint_T.device)]


def shared(ids: Tensor, among: Tensor) -> Tensor:
    """Which of the ids [..., K] are in the same row of the others. Sorts, since K times K may be large."""
    ordered = among.sort(dim=-1).values
    place = torch.searchsorted(ordered, ids.contiguous()).clamp(max=among.shape[-1] - 1)
    return ordered.gather(-1, place) == ids


def candidates(
    sample: Sample, logits_old_TV: Tensor, old_TV: Tensor, teachers: Iterable[Tensor], *, k: int
) -> Candidates:
    """Score the teachers, whose logits [T, V] are read one by one, against the old policy.

    `old_TV` are the log-probs of `logits_old_TV`. The order of ids is read off the logits themselves.
    ValueError unless there is one teacher per hint.
    """
    student_TK = top_k(logits_old_TV, k)
    outputs = []
    for teacher_TV in teachers:
        same_shape(logits_old_TV, "teacher", teacher_TV)
        outputs.append(_teacher_output(teacher_TV, student_TK, sample))
    if len(outputs) != sample.hints:
        raise ValueError(f"{sample.hints} hints but {len(outputs)} teachers")
    at_student, native, native_teacher, sampled = map(torch.stack, zip(*outputs, strict=True))
    return Candidates(
        student_ids_TK=student_TK,
        student_old_TK=at(old_TV, student_TK),
        student_teacher_HTK=at_student,
        native_ids_HTK=native,
        native_teacher_HTK=native_teacher,
        sampled_teacher_HT=sampled,
        old_at=partial(at, old_TV),
    )


def given_candidates(
    given: Sequence[TeacherRows],
    *,
    student_ids_TK: Tensor,
    student_old_TK: Tensor,
    old_T: Tensor,
    old_at: Callable[[Tensor], Tensor],
) -> Candidates:
    """As of teachers, one per hint, whose own ids are the rows'.

    A token without a row has no gap: there the teacher says what the old policy says.
    """
    rows = [each.to(old_T.dtype) for each in given]
    valid = [each.valid_TK for each in rows if each.valid_TK is not None]
    return Candidates(
        student_ids_TK=student_ids_TK,
        student_old_TK=student_old_TK,
        student_teacher_HTK=torch.stack([each.at(student_ids_TK) for each in rows]),
        asked=all(each.asked_TJ is not None for each in rows),
        native_ids_HTK=torch.stack([each.ids_TK for each in rows]),
        native_teacher_HTK=torch.stack([each.logprobs_TK for each in rows]),
        native_valid_HTK=torch.stack(valid) if valid else None,
        sampled_teacher_HT=torch.stack(
            [torch.where(each.distilled_T, each.sampled_T.to(old_T.dtype), old_T) for each in rows]
        ),
        old_at=old_at,
    )


def _teacher_output(
    logits_TV: Tensor, student_TK: Tensor, sample: Sample
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One teacher's part of `Candidates`, in the order in which `candidates` names it."""
    teacher_TV = logprobs(logits_TV, sample.tau)
    native_TK = top_k(logits_TV, student_TK.shape[-1])
    return (
        at(teacher_TV, student_TK),
        native_TK,
        at(teacher_TV, native_TK),
        at(teacher_TV, sample.ids_T),
    )
