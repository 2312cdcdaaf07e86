"""A teacher on a server against a plain forward of the same model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from afterwit.engines.teacher import ServedTeacher
from tests.engines.talk import plain_logits

K = 4
ROWS = [
    (tuple(range(3, 40)), tuple(range(50, 62))),
    (tuple(range(3, 40)), (5,)),
    ((9,), tuple(range(100, 130))),
    (tuple(range(3, 203)), tuple(range(50, 60))),
]
"""Prompts and responses, short ones next to long ones."""


def teacher_at(url: str, folder: Path, *, k: int = K, given: int = 0) -> ServedTeacher:
    return ServedTeacher(folder, url, k=k, given=given, key=None, silence_s=300.0, patience_s=60.0)


async def teaches_as(url: str, folder: Path, *, given: bool = False) -> None:
    """It scores each response as a plain forward does: its ids, the likeliest at each place; others too."""
    at = [[((7 * place) % 400, 3, (5 * place + 1) % 400) for place in range(len(said))] for _, said in ROWS]
    teacher = teacher_at(url, folder, given=3 if given else 0)
    scores = await asyncio.to_thread(teacher.score, ROWS, at if given else None)
    for (prompt, response), asked, found in zip(ROWS, at, scores, strict=True):
        logprobs_TV = plain_logits(folder, [*prompt, *response])[len(prompt) - 1 : -1].log_softmax(-1)
        values_TK, ids_TK = logprobs_TV.topk(K)
        expected = [row[token].item() for row, token in zip(logprobs_TV, response, strict=True)]
        assert found.logprobs == pytest.approx(expected, abs=1e-4)
        assert [list(row) for row in found.top_ids] == ids_TK.tolist()
        for row, values in zip(found.top_logprobs, values_TK.tolist(), strict=True):
            assert row == pytest.approx(values, abs=1e-4)
        for row, ids, logprobs_V in zip(found.asked, asked, logprobs_TV, strict=given):
            assert row == pytest.approx(logprobs_V[list(ids)].tolist(), abs=1e-4)
