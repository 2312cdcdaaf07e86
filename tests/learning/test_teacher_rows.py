"""An update by a teacher's rows is the update by the teacher itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import TeacherRow
from afterwit.learning.batch import Item, teacher_rows
from afterwit.learning.passes import response_logits
from afterwit.objective.settings import ObjectiveSettings
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted
from tests.learning.updates import EXACT, furthest, items_of, moved, read_only
from tests.products import diagonal

HINT = ("Read the file first.",)


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reweighted(tmp_path_factory.mktemp("student"), base, seed=3)


def given(items: Sequence[Item], base: Path, *, k: int | None) -> list[Item]:
    """The same items, with rows of the teacher in its place."""
    return [replace(item, teachers=(), hints=(), teacher_rows=_rows(item, base, k)) for item in items]


def _rows(item: Item, base: Path, k: int | None) -> tuple[TeacherRow | None, ...] | None:
    if not item.teachers:
        return None
    (logits_TV,) = response_logits(read_only(base), item.teachers)
    told_TV = torch.log_softmax(logits_TV.detach() / item.behaviour.tau, dim=-1)
    rows: list[TeacherRow | None] = []
    for own, row_V, forced in zip(item.student.response, told_TV, item.behaviour.forced, strict=True):
        others = [each for each in row_V.argsort(descending=True).tolist() if each != own]
        ids = [own, *others][:k]
        found = TeacherRow(ids=tuple(ids), logprobs=tuple(row_V[ids].tolist()))
        rows.append(None if forced else found)
    return tuple(rows)


CASES = {
    "token_opd": (ObjectiveSettings(objective="token_opd", beta=0.1), 1),
    "hybrid_token": (ObjectiveSettings(objective="hybrid_token", beta=0.0), 3),
    "topk_opd": (ObjectiveSettings(objective="topk_opd", subset="teacher", k=100_000, beta=0.0), None),
    "hybrid_distill": (ObjectiveSettings(objective="hybrid_distill", k=100_000, beta=0.1), None),
    "combine": (ObjectiveSettings(objective="combine", beta=0.0), 1),
}


@pytest.mark.parametrize(("case", "head"), diagonal(CASES.keys(), ["fused", "plain"]))
def test_the_weights_are_those_that_the_teacher_itself_would_have_made(
    student: Path, base: Path, renderer: Renderer, case: str, head: str
) -> None:
    objective, k = CASES[case]
    samples = [
        a_sample(renderer, 0, hints=HINT, tokens=5),
        a_sample(renderer, 1, hints=HINT, tokens=4, forced=(False, True, False, False), tau=0.7),
        *([] if case in ("token_opd", "topk_opd") else [a_sample(renderer, 2, reward=1, hints=())]),
    ]
    items = items_of(samples, renderer, objective)
    settings = replace(EXACT, loss_backend=head, reference_reads_hints=False)  # no rows hold the reference's
    by_teacher, metrics = moved(student, base, items, objective, settings)
    by_rows, same = moved(student, base, given(items, base, k=k), objective, settings)
    assert furthest(by_teacher, by_rows) < 1e-10
    assert same["loss"] == pytest.approx(metrics["loss"], abs=1e-10)
    assert same["opd_samples"] == metrics["opd_samples"] == 2


def test_rows_of_another_length_than_the_response_are_refused(renderer: Renderer) -> None:
    (item,) = items_of([a_sample(renderer, 0, hints=HINT)], renderer, ObjectiveSettings())
    with pytest.raises(ValueError, match="6 ids but 5 teacher rows"):
        replace(item, teacher_rows=(None,) * 5)


def test_rows_of_other_tokens_and_of_such_that_do_not_train_are_refused(
    renderer: Renderer, base: Path
) -> None:
    like = torch.zeros(1, dtype=torch.float64)
    sample = a_sample(renderer, 1, hints=HINT, tokens=4, forced=(False, True, False, False))
    (item,) = given(items_of([sample], renderer, ObjectiveSettings()), base, k=2)
    rows = item.teacher_rows or ()
    for wrong, word in (
        ((rows[0], rows[0], *rows[2:]), "does not train"),
        ((rows[2], None, rows[0], rows[3]), "begin with the sampled id"),
    ):
        with pytest.raises(ValueError, match=word):
            teacher_rows([replace(item, teacher_rows=wrong)], None, like, k=4)
