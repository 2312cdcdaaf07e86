"""What a teacher on a server says of a batch, asked before the first micro-batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from afterwit.core.teacher import TeacherScores, TeacherServer
from afterwit.learner.batch import Item
from afterwit.objective.candidates import KnownTopK


def known_top_k(
    served: TeacherServer, items: Sequence[Item], like: Tensor
) -> dict[int, tuple[KnownTopK, ...]]:
    """By the index of each item with hints: its teacher after each of them, where `like` lies.

    EngineError if the server cannot be asked.
    """
    rows = [(row.prompt, row.response) for item in items for row in item.teachers]
    dtype = torch.float64 if like.dtype is torch.float64 else torch.float32
    scores = iter(served.score(rows) if rows else ())
    return {
        index: tuple(_tensors(next(scores), like.device, dtype) for _ in item.teachers)
        for index, item in enumerate(items)
        if item.teachers
    }


def _tensors(scores: TeacherScores, device: torch.device, dtype: torch.dtype) -> KnownTopK:
    return KnownTopK(
        sampled_T=torch.tensor(scores.sampled, device=device, dtype=dtype),
        ids_TK=torch.tensor(scores.ids, device=device),
        logprobs_TK=torch.tensor(scores.logprobs, device=device, dtype=dtype),
    )
