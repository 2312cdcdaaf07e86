"""Lessons from the items of an update: teacher scores, and denominators over the whole batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoConfig

from afterwit.api.learning import (
    Ids,
    Item,
    ServedTeacher,
    TeacherScores,
    TeacherServer,
    given_ids,
    sample_of,
    teacher_rows,
)
from afterwit.api.objective import Denominators, Rewarded, advantages, denominators
from afterwit.api.settings import ObjectiveSettings, ServerSettings, Settings
from afterwit.api.turns import SettingError
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
    rewarded = [None if item.reward is None else Rewarded(item.reward, item.group) for item in items]
    found = advantages(rewarded, objective).values
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
) -> list[tuple[TeacherScores, ...]]:
    """The teacher's scores after each item's hints, at the student's likeliest ids too if they learn."""
    hinted = [item for item in items if item.teachers]
    if teacher is None or not hinted:
        return [() for _ in items]
    wanted: list[Sequence[Ids]] | None = None
    if student is not None:
        likeliest = student.score([(item.student.prompt, item.student.response) for item in hinted])
        wanted = [said.ids for item, said in zip(hinted, likeliest, strict=True) for _ in item.teachers]
    rows = [(row.prompt, row.response) for item in hinted for row in item.teachers]
    scores = iter(teacher.score(rows, wanted))
    return [tuple(next(scores) for _ in item.teachers) for item in items]


def student_server(settings: Settings, folder: Path) -> ServedTeacher | None:
    """The server of the policy, if the objective learns at its likeliest ids; they are those of pi_old, for
    slime has just loaded it. SettingError if there is none."""
    engine = settings.engine
    if not (k := given_ids(settings.objective)):
        return None
    if not isinstance(engine, ServerSettings):
        raise SettingError(
            "objective.subset is 'student', whose ids the policy's own server tells: set engine.kind and"
            " engine.url to slime's, or objective.subset = 'teacher'"
        )
    return ServedTeacher(
        folder,
        engine.urls[0],
        k=k,
        key=engine.key(os.environ),
        silence_s=engine.silence_s,
        patience_s=engine.patience_s,
    )


def _denominators(
    items: Sequence[Item],
    found: Sequence[float | None],
    scores: Sequence[tuple[TeacherScores, ...]],
    objective: ObjectiveSettings,
) -> Denominators:
    """Counts over the batch, which each rank would otherwise know of its own part alone."""
    like = torch.zeros(())
    lone = [
        sample_of(
            item,
            teacher_rows([item], [said], like, k=objective.ids_kept)[0],
            advantage,
            like.device,
            served=bool(said),
        )
        for item, advantage, said in zip(items, found, scores, strict=True)
    ]
    return denominators(lone, objective)
