"""What selection and distillation need of the old policy and of the teachers, reduced to K ids a position.

Every field separates by rows and by hints, so logits may come in chunks and one teacher at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from afterwit.objective.logprobs import at, logprobs, same_shape, top_k
from afterwit.objective.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The top-K of pi_old and of every teacher, each scored by the other. No gradient."""

    student_ids_TK: Tensor
    student_old_TK: Tensor
    """log pi_old at the student's ids."""
    student_teacher_HTK: Tensor
    """log pi_T^h at the student's ids."""
    native_ids_HTK: Tensor
    """Each teacher's own top-K."""
    native_teacher_HTK: Tensor
    """log pi_T^h at the teacher's ids."""
    sampled_teacher_HT: Tensor
    """log pi_T^h at the sampled ids."""
    old_at: Callable[[Tensor], Tensor]
    """log pi_old at any ids [T, K]; few objectives ask."""


def candidates(
    sample: Sample, logits_old_TV: Tensor, old_TV: Tensor, teachers: Iterable[Tensor], *, k: int
) -> Candidates:
    """Score the teachers, whose logits [T, V] are read one by one, against the old policy.

    `old_TV` are the log-probs of `logits_old_TV`; the order of ids is read off the logits themselves.
    """
    student_TK = top_k(logits_old_TV, k)
    views = []
    for teacher_TV in teachers:
        same_shape(logits_old_TV, "teacher", teacher_TV)
        views.append(_view(teacher_TV, student_TK, sample))
    if len(views) != sample.hints:
        raise ValueError(f"{sample.hints} hints but {len(views)} teachers")
    at_student, native, native_teacher, sampled = map(torch.stack, zip(*views, strict=True))
    return Candidates(
        student_ids_TK=student_TK,
        student_old_TK=at(old_TV, student_TK),
        student_teacher_HTK=at_student,
        native_ids_HTK=native,
        native_teacher_HTK=native_teacher,
        sampled_teacher_HT=sampled,
        old_at=partial(at, old_TV),
    )


def _view(logits_TV: Tensor, student_TK: Tensor, sample: Sample) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One teacher's part of `Candidates`, in the order in which `candidates` names it."""
    teacher_TV = logprobs(logits_TV, sample.tau)
    native_TK = top_k(logits_TV, student_TK.shape[-1])
    return (
        at(teacher_TV, student_TK),
        native_TK,
        at(teacher_TV, native_TK),
        at(teacher_TV, sample.ids_T),
    )
