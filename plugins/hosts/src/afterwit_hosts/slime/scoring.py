"""Lessons from the items of an update: teacher scores, and denominators over the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoConfig

from afterwit.api.learning import Ids, Item, TeacherServer, item_advantages, served_sample
from afterwit.api.objective import Denominators, denominators
from afterwit.api.serving import Scored
from afterwit.api.settings import ObjectiveSettings, Settings
from afterwit_hosts.slime.lesson import Batch, Lesson


def lessons_of(
    items: Sequence[Item],
    settings: Settings,
    *,
    home: Path,
    base: Path,
    teacher: TeacherServer | None,
    student: TeacherServer | None,
) -> list[Lesson]:
    """One lesson for each item, in order. EngineError if a server cannot be asked.

    `teacher` scores hints; `student` returns the policy's likeliest ids, if the objective learns at them.
    """
    objective = settings.objective
    found = item_advantages(items, objective).values
    scores = _scores(items, teacher, student)
    batch = Batch(
        home=home,
        base=base,
        turns=tuple(item.turn for item in items if item.turn is not None),
        objective=objective,
        over=_denominators(items, found, scores, objective),
        vocabulary=AutoConfig.from_pretrained(base).get_text_config().vocab_size,
    )
    return [
        Lesson(item=item, advantage=advantage, scores=said, batch=batch)
        for item, advantage, said in zip(items, found, scores, strict=True)
    ]


def _scores(
    items: Sequence[Item], teacher: TeacherServer | None, student: TeacherServer | None
) -> list[tuple[Scored, ...]]:
    """The teacher's scores after each item's hints, at the student's likeliest ids too if they learn."""
    hinted = [item for item in items if item.teachers]
    if teacher is None or not hinted:
        return [() for _ in items]
    wanted: list[Sequence[Ids]] | None = None
    if student is not None:
        likeliest = student.score([(item.student.prompt, item.student.response) for item in hinted])
        wanted = [said.top_ids for item, said in zip(hinted, likeliest, strict=True) for _ in item.teachers]
    rows = [(row.prompt, row.response) for item in hinted for row in item.teachers]
    scores = iter(teacher.score(rows, wanted))
    return [tuple(next(scores) for _ in item.teachers) for item in items]


def _denominators(
    items: Sequence[Item],
    found: Sequence[float | None],
    scores: Sequence[tuple[Scored, ...]],
    objective: ObjectiveSettings,
) -> Denominators:
    """Counts over the batch, which each rank would otherwise know of its own part alone."""
    like, k = torch.zeros(()), objective.ids_kept
    lone = [
        served_sample(item, said, advantage, like, k=k)
        for item, advantage, said in zip(items, found, scores, strict=True)
    ]
    return denominators(lone, objective)
