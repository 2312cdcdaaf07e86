"""What teachers that ran elsewhere say of a batch: rows that came with it, or that a server is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from afterwit.core.teacher import Ids, TeacherScores, TeacherServer
from afterwit.learner.batch import Item
from afterwit.learner.ranks import Ranks
from afterwit.learner.scoring import Row
from afterwit.objective.teacher_rows import TeacherRows


def told(
    items: Sequence[Item],
    served: TeacherServer | None,
    ranks: Ranks,
    at: Callable[[Sequence[Row]], list[Sequence[Ids]]] | None = None,
) -> list[Sequence[TeacherScores]] | None:
    """What the server says after each item's hints; each rank asks for its share. None without a server.

    `at` gives, for responses, the ids of each place that it is asked about too. EngineError if the server
    cannot be asked.
    """
    if served is None:
        return None
    with ranks.together():
        mine = ranks.share([sum(map(len, item.teachers)) for item in items])
        hinted = [index for index in mine if items[index].teachers]
        asked = [(row.prompt, row.response) for index in hinted for row in items[index].teachers]
        wanted = None
        if at is not None:
            ids = at([items[index].student for index in hinted])
            wanted = [each for index, each in zip(hinted, ids, strict=True) for _ in items[index].teachers]
        scores = iter(served.score(asked, wanted) if asked else ())
        own = {index: [next(scores) for _ in items[index].teachers] for index in mine}
    found = ranks.gathered(own)
    return [found[index] for index in range(len(items))]


def given_rows(
    items: Sequence[Item], scores: Sequence[Sequence[TeacherScores]] | None, like: Tensor
) -> list[tuple[TeacherRows, ...]]:
    """Of each item, the rows after each of its hints, where `like` lies; () if it has none.

    `scores` are what a server told; None: rows came with the items, or there are none.
    """
    dtype = torch.float64 if like.dtype is torch.float64 else torch.float32
    width = max((len(row.ids) for item in items for row in item.given or () if row is not None), default=0)
    if scores is None:
        return [_padded(item, width, like.device, dtype) for item in items]
    return [tuple(_rows(each, like.device, dtype) for each in hints) for hints in scores]


def _rows(scores: TeacherScores, device: torch.device, dtype: torch.dtype) -> TeacherRows:
    return TeacherRows(
        sampled_T=torch.tensor(scores.sampled, device=device, dtype=dtype),
        ids_TK=torch.tensor(scores.ids, device=device),
        logprobs_TK=torch.tensor(scores.logprobs, device=device, dtype=dtype),
        asked_ids_TJ=torch.tensor(scores.asked_ids, device=device) if scores.asked else None,
        asked_TJ=torch.tensor(scores.asked, device=device, dtype=dtype) if scores.asked else None,
    )


def _padded(item: Item, width: int, device: torch.device, dtype: torch.dtype) -> tuple[TeacherRows, ...]:
    """The item's own rows, padded to `width`; none if no token of it is distilled.

    ValueError for a row of another token, or of one that does not train.
    """
    if item.given is None or not any(row is not None for row in item.given):
        return ()
    ids, logprobs, valid = [], [], []
    for token, forced, row in zip(item.student.response, item.behaviour.forced, item.given, strict=True):
        if row is not None and forced:
            raise ValueError("a token that does not train has a teacher's row")
        if row is not None and row.ids[0] != token:
            raise ValueError("a teacher's row does not begin with the sampled id")
        found = () if row is None else row.ids
        room = width - len(found)
        ids.append([*found, *[token] * room])
        logprobs.append([*(() if row is None else row.logprobs), *[0.0] * room])
        valid.append([True] * len(found) + [False] * room)
    logprobs_TK = torch.tensor(logprobs, device=device, dtype=dtype)
    rows = TeacherRows(
        sampled_T=logprobs_TK[:, 0],
        ids_TK=torch.tensor(ids, device=device),
        logprobs_TK=logprobs_TK,
        valid_TK=torch.tensor(valid, device=device),
    )
    return (rows,)
