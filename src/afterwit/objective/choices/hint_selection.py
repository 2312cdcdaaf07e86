"""Which hint's teacher is learned from (overlap-guided selection: OpenClaw-RL, arXiv:2603.10165).

`HINT_RULES` holds every rule. Hints come sorted by length, the shortest first. Every tie goes to the first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from afterwit.objective.candidates import Candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class HintRule:
    """One value of the setting `hint_selection`: either `known` or `score` is given."""

    known: Callable[[Sequence[int], Sequence[int]], int] | None = None
    """(characters of each hint, the response's ids) -> the hint. No other hint's teacher runs."""
    score: Callable[[Candidates], Tensor] | None = None
    """The candidates' scores [H, T]; the largest is chosen."""
    score_ids: Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], Sequence[float]] | None = None
    """`score` of one hint [T] without tensors, for rollouts: from the likeliest ids [T][K] of the student and
    of the hint's teacher. None: a rollout cannot be scored by this rule."""
    per_token: bool = False
    """Whether each token has its own hint. Else the scores of the tokens that train are summed."""
    keeps_longest: bool = False
    """Of more hints than the judge keeps, the longest stay, not the shortest."""

    def __post_init__(self) -> None:
        if (self.known is None) == (self.score is None):
            raise ValueError("a hint rule needs either `known` or `score`")

    def teachers(self, lengths: Sequence[int], ids: Sequence[int]) -> tuple[int, ...]:
        """The hints whose teachers have to run."""
        if self.known is None or len(lengths) < 2:
            return tuple(range(len(lengths)))
        return (self.known(lengths, ids),)

    def choose(self, candidates: Candidates, mask_T: Tensor) -> Tensor:
        """h* [T]: the chosen hint of each position. ValueError if teachers ran that the rule never reads."""
        hints, tokens = candidates.sampled_teacher_HT.shape
        if hints == 1:
            return mask_T.long() * 0
        if self.score is None:
            raise ValueError(f"{hints} teachers ran, but the hint is chosen before any of them")
        score_HT = self.score(candidates)
        if self.per_token:
            return score_HT.argmax(dim=0)
        return (score_HT * mask_T).sum(dim=1).argmax().expand(tokens)

    def choose_by_ids(
        self,
        student_TK: Sequence[Sequence[int]],
        teachers_HTK: Sequence[Sequence[Sequence[int]]],
        mask_T: Sequence[bool],
    ) -> tuple[int, ...]:
        """`choose`, without tensors, from the likeliest ids of the student and of each hint's teacher."""
        tokens = len(mask_T)
        if len(teachers_HTK) == 1:
            return (0,) * tokens
        if self.score is None:
            raise ValueError(f"{len(teachers_HTK)} teachers ran, but the hint is chosen before any of them")
        if self.score_ids is None:
            raise ValueError("this hint rule has no `score_ids`: it needs more than the likeliest ids")
        score_HT = [self.score_ids(student_TK, each) for each in teachers_HTK]
        if self.per_token:
            return tuple(_first_largest([row[at] for row in score_HT]) for at in range(tokens))
        totals = [sum(value for value, inside in zip(row, mask_T, strict=True) if inside) for row in score_HT]
        return (_first_largest(totals),) * tokens


def _first_largest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def _shortest(lengths: Sequence[int], ids: Sequence[int]) -> int:
    return 0


def _longest(lengths: Sequence[int], ids: Sequence[int]) -> int:
    return max(range(len(lengths)), key=lengths.__getitem__)


def _random(lengths: Sequence[int], ids: Sequence[int]) -> int:
    """Each as likely, the same for the same ids: their SHA-256 as little-endian 64-bit integers, of which the
    first eight bytes, big-endian, modulo the number of hints."""
    digest = sha256(struct.pack(f"<{len(ids)}q", *ids)).digest()
    return int.from_bytes(digest[:8], "big") % len(lengths)


def _overlap(candidates: Candidates) -> Tensor:
    """How many of the student's top-K ids are among the teacher's."""
    return candidates.overlap_HT


def _overlap_ids(student_TK: Sequence[Sequence[int]], teacher_TK: Sequence[Sequence[int]]) -> list[int]:
    """`_overlap` of one hint."""
    return [
        len({*student_K} & {*teacher_K}) for student_K, teacher_K in zip(student_TK, teacher_TK, strict=True)
    ]


HINT_RULES = {
    "shortest": HintRule(known=_shortest),
    "longest": HintRule(known=_longest, keeps_longest=True),
    "random": HintRule(known=_random),
    "sequence_optimal": HintRule(score=_overlap, score_ids=_overlap_ids),
    "token_optimal": HintRule(score=_overlap, score_ids=_overlap_ids, per_token=True),
}
