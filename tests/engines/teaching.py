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
]
"""Prompts and responses."""


def teacher_at(url: str, folder: Path, *, k: int = K) -> ServedTeacher:
    return ServedTeacher(folder, url, k=k, key=None, silence_s=300.0, patience_s=60.0)


async def teaches_as(url: str, folder: Path) -> None:
    """It scores each response as a plain forward does: its ids, and the likeliest at each place."""
    scores = await asyncio.to_thread(teacher_at(url, folder).score, ROWS)
    for (prompt, response), found in zip(ROWS, scores, strict=True):
        logprobs_TV = plain_logits(folder, [*prompt, *response])[len(prompt) - 1 : -1].log_softmax(-1)
        values_TK, ids_TK = logprobs_TV.topk(K)
        expected = [row[token].item() for row, token in zip(logprobs_TV, response, strict=True)]
        assert found.sampled == pytest.approx(expected, abs=1e-4)
        assert [list(row) for row in found.ids] == ids_TK.tolist()
        for row, values in zip(found.logprobs, values_TK.tolist(), strict=True):
            assert row == pytest.approx(values, abs=1e-4)
