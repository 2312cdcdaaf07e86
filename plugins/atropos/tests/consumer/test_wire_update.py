"""Rows from the wire move the weights as the teacher itself would have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.objective.settings import ObjectiveSettings
from afterwit_atropos.consumer import Limits, intake
from afterwit_atropos.group import Profile
from plugins.atropos.tests.consumer.groups import on_the_wire
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted, tiny_qwen3
from tests.fakes.renderers import renderer_of
from tests.learning.test_teacher_rows import HINT, given
from tests.learning.updates import EXACT, furthest, items_of, moved, read_only

SCORES = (-1.0, 1.0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("base"), num_hidden_layers=1)


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reweighted(tmp_path_factory.mktemp("student"), base, seed=3)


@pytest.mark.parametrize(
    ("profile", "objective"),
    [
        (Profile.SAMPLED, ObjectiveSettings(objective="hybrid_token", baseline="group")),
        (Profile.TOPK, ObjectiveSettings(objective="hybrid_distill", baseline="group", k=100_000)),
    ],
)
def test_an_update_by_the_wire_is_the_live_loops_own(
    student: Path, base: Path, profile: Profile, objective: ObjectiveSettings
) -> None:
    renderer = renderer_of(base)
    samples = [
        replace(
            a_sample(renderer, number, reward=int(score), hints=HINT, tokens=5, tau=0.7),
            group_rewards=tuple(map(int, SCORES)),
        )
        for number, score in enumerate(SCORES)
    ]
    live = items_of(samples, renderer, objective)
    group = on_the_wire(given(live, base, k=None), SCORES, profile)
    vocabulary = read_only(base).config.vocab_size
    limits = Limits(vocabulary=vocabulary, max_tokens=512, max_staleness=16, version=0, temperature=1.0)
    found = intake([group], limits, ObjectiveSettings(baseline="group", k=objective.k))
    assert found.objective.objective == objective.objective
    how = replace(EXACT, reference_reads_hints=False)  # the wire holds no hints
    by_teacher, metrics = moved(student, base, live, objective, how)
    by_wire, same = moved(student, base, found.items, found.objective, how)
    assert furthest(by_teacher, by_wire) < 1e-10
    for name in ("loss", "rl", "opd", "reference_kl", "mismatch_mean"):
        assert same[name] == pytest.approx(metrics[name], abs=1e-10)
