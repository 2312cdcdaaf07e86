"""Which hint teaches at each position (overlap-guided hint selection, OpenClaw-RL, arXiv:2603.10165).

Candidates come sorted by length, so the first is the shortest; every tie goes to the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from afterwit.objective.settings import HintSelection


def overlap(student_TK: Tensor, native_HTK: Tensor) -> Tensor:
    """O [H, T]: how many of the student's top-K ids are among the teacher's."""
    return (student_TK[:, :, None] == native_HTK[:, :, None, :]).any(dim=-1).sum(dim=-1)


def fixed_choice(rule: HintSelection, hints: int, lengths: Sequence[int] | None = None) -> int | None:
    """The hint that `rule` takes without looking at a teacher, or `None` if it has to look."""
    if rule == "shortest" or hints == 1:
        return 0
    if rule == "longest":
        return hints - 1 if lengths is None else list(lengths).index(max(lengths))
    return None


def choose(
    overlap_HT: Tensor, rule: HintSelection, mask_T: Tensor, lengths: Sequence[int] | None = None
) -> Tensor:
    """h* [T]: the hint that teaches at each position. Masked tokens have no say in a sequence's choice."""
    hints, tokens = overlap_HT.shape
    fixed = fixed_choice(rule, hints, lengths)
    if fixed is not None:
        return torch.full((tokens,), fixed, device=overlap_HT.device)
    if rule == "token_optimal":
        return overlap_HT.argmax(dim=0)
    return overlap_HT[:, mask_T].sum(dim=1).argmax().expand(tokens)


def pick(values_HT: Tensor, hint_T: Tensor) -> Tensor:
    """The chosen hint's values: [H, T, ...] and [T] give [T, ...]."""
    return values_HT[hint_T, torch.arange(len(hint_T), device=hint_T.device)]
