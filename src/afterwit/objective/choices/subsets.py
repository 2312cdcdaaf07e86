"""Which ids learn in top-K OPD. `SUBSETS` holds every choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from afterwit.objective.candidates import Candidates


class Members(NamedTuple):
    """The ids of a subset with their log-probs, each [T, K]."""

    ids_TK: Tensor
    old_TK: Tensor
    """log pi_old."""
    teacher_TK: Tensor
    """log pi_T of the chosen hint."""
    valid_TK: Tensor | None
    """False for an id that is not in the subset; None: all are."""


def _student(candidates: Candidates, hint_T: Tensor) -> Members:
    if not candidates.asked:
        raise ValueError("the teacher did not score the student's ids: subset must be 'teacher' or 'overlap'")
    return _scored(candidates, hint_T)


def _scored(candidates: Candidates, hint_T: Tensor) -> Members:
    teacher_TK = candidates.pick(candidates.student_teacher_HTK, hint_T)
    return Members(candidates.student_ids_TK, candidates.student_old_TK, teacher_TK, None)


def _teacher(candidates: Candidates, hint_T: Tensor) -> Members:
    native_TK = candidates.pick(candidates.native_ids_HTK, hint_T)
    teacher_TK = candidates.pick(candidates.native_teacher_HTK, hint_T)
    valid_TK = None if candidates.native_valid_HTK is None else candidates.native_valid_TK(hint_T)
    return Members(native_TK, candidates.old_at(native_TK), teacher_TK, valid_TK)


def _overlap(candidates: Candidates, hint_T: Tensor) -> Members:
    shared_TK = candidates.pick(candidates.shared_HTK, hint_T)
    return _scored(candidates, hint_T)._replace(valid_TK=shared_TK)


Subset = Callable[["Candidates", "Tensor"], Members]
"""(candidates, the chosen hint [T]) -> the ids that learn."""

SUBSETS: dict[str, Subset] = {"student": _student, "teacher": _teacher, "overlap": _overlap}
