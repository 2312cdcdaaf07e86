"""Lessons of made-up turns, whose teacher and policy lie here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from afterwit.config import Settings
from afterwit.engines.port import TeacherServer
from afterwit.engines.teacher import given_ids
from afterwit.learning.batch import Item
from afterwit.objective.settings import ObjectiveSettings
from afterwit_hosts.slime.lessons import Lesson, lessons_of
from tests.learning.test_served_teacher import SERVED, FromLogits

PLAIN = replace(SERVED, loss_backend="plain", packing="off")
OBJECTIVES = {
    "rl": ObjectiveSettings(objective="rl", beta=0, aggregation="batch"),
    "token_opd": ObjectiveSettings(objective="token_opd", beta=0),
    "hybrid-student": ObjectiveSettings(subset="student", beta=0, tail_bucket=True),
    "hybrid-overlap": ObjectiveSettings(subset="overlap", beta=0, hint_selection="token_optimal"),
    "topk_opd-teacher": ObjectiveSettings(objective="topk_opd", subset="teacher", beta=0, k=7),
}


def made(
    items: Sequence[Item], objective: ObjectiveSettings, student: TeacherServer, base: Path
) -> list[Lesson]:
    """Lessons whose teacher is the base; `student` gives the policy's likeliest ids, if they learn."""
    settings = Settings(model=str(base), objective=objective)
    return lessons_of(
        items,
        settings,
        home=base.parent,
        base=base,
        teacher=FromLogits(base, objective.ids_kept) if objective.needs_teacher else None,
        student=student if given_ids(objective) else None,
    )
