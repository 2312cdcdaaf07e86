"""Groups as environments send them: made of random ids, or of a live update's items and their teacher."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from afterwit.engines.port import TeacherRow
from afterwit.learning.batch import Item
from afterwit_atropos.group import GroupNotes, Profile, ScoredGroup, ScoredSequence
from afterwit_atropos.wire import write

VOCABULARY = 400
SENTINEL = 1.0


def plain_group(scores: Sequence[float] = (0.0, 1.0), *, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A group of an environment that is not ours: no teacher's rows, no notes."""
    random = Random(seed)
    tokens = [[random.randrange(VOCABULARY) for _ in range(8)] for _ in scores]
    group: dict[str, Any] = {
        "tokens": tokens,
        "masks": [[-100] * 3 + row[3:5] + [-100] + row[6:] for row in tokens],
        "scores": list(scores),
        "inference_logprobs": [[SENTINEL] * 3 + [-1.0, -2.0, SENTINEL, -1.5, -0.5] for _ in tokens],
    }
    return group | changes


def with_rows(group: dict[str, Any], k: int) -> dict[str, Any]:
    """The same with made-up rows at every token in the loss."""
    ids, logprobs = [], []
    for tokens, masks, own in zip(group["tokens"], group["masks"], group["inference_logprobs"], strict=True):
        rows = [_row(*each, k) for each in zip(tokens, masks, own, strict=True)]
        ids.append([row_ids for row_ids, _ in rows])
        logprobs.append([row_logprobs for _, row_logprobs in rows])
    return group | {"distill_token_ids": ids, "distill_logprobs": logprobs}


def _row(token: int, mask: int, reported: float, k: int) -> tuple[list[int], list[float]]:
    if mask == -100:
        return ([token], [reported]) if k == 1 else ([], [])
    others = [(token + 1 + at) % VOCABULARY for at in range(k - 1)]
    return [token, *others], [-0.4 - at for at in range(k)]


def on_the_wire(items: Sequence[Item], scores: Sequence[float], profile: Profile) -> dict[str, Any]:
    """Items with given rows as one group, through strict JSON."""
    group = ScoredGroup(
        sequences=tuple(_sequence(item, score) for item, score in zip(items, scores, strict=True)),
        notes=GroupNotes(tau=items[0].behaviour.tau, teacher="base"),
    )
    found: dict[str, Any] = json.loads(json.dumps(write(group, profile), allow_nan=False))
    return found


def _sequence(item: Item, score: float) -> ScoredSequence:
    before: tuple[TeacherRow | None, ...] = (None,) * len(item.student.prompt)
    forced = item.behaviour.forced
    own = zip(item.behaviour.logprobs or (), forced, strict=True)
    return ScoredSequence(
        tokens=(*item.student.prompt, *item.student.response),
        mask=(*(False for _ in before), *(not each for each in forced)),
        score=score,
        logprobs=(*(None for _ in before), *(None if fixed else value for value, fixed in own)),
        rows=(*before, *(item.teacher_rows or ())),
    )
