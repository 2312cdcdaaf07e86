"""The share of the way to the teacher that an update goes: by a measurement of its own, and its limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from afterwit.chat_format.render import Renderer
from afterwit.learning.batch import Item
from afterwit.learning.metrics import _way
from afterwit.learning.passes import Row, response_logits
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import update
from afterwit.objective.sample import Sample, Target
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms import TokenTargets
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted
from tests.learning.updates import EXACT, Given, items_of, policy_of, quiet, read_only

DISTILLED = ObjectiveSettings(objective="token_opd", beta=0.0)
"""It moves the sampled ids, here noise that top-K OPD would not see, and so the way that is measured."""


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has moved away from the base."""
    return reweighted(tmp_path_factory.mktemp("student"), base, seed=3)


def hinted(renderer: Renderer) -> list[Item]:
    samples = [
        a_sample(renderer, at, reward=-1, tau=0.6 + 0.1 * at, tokens=5 + at, hints=(f"Say {at}.",))
        for at in range(3)
    ]
    return items_of(samples, renderer, DISTILLED)


def way_of(folder: Path, base: Path, items: list[Item], settings: LearnerSettings = EXACT) -> float | None:
    """As a version has it."""
    policy, models = policy_of(folder, settings), Given(read_only(base), settings)
    found, _ = update(policy, models, items, DISTILLED, settings, quiet, measured=len(items))
    return found.get("way_to_teacher")


@torch.no_grad()
def logprobs(model: torch.nn.Module, item: Item, row: Row) -> Tensor:
    (logits_TV,) = response_logits(model, [row])  # type: ignore[arg-type]
    ids_T = torch.tensor(item.student.response)
    return (logits_TV / item.behaviour.tau).log_softmax(-1).gather(-1, ids_T[:, None])[:, 0]


def test_an_update_goes_as_far_as_whole_passes_of_the_models_show(
    student: Path, base: Path, renderer: Renderer
) -> None:
    items, policy = hinted(renderer), policy_of(student, EXACT)
    old = [logprobs(policy.model, item, item.student) for item in items]
    models = Given(read_only(base), EXACT)
    found, _ = update(policy, models, items, DISTILLED, EXACT, quiet, measured=len(items))
    along = wanted = 0.0
    for item, old_T in zip(items, old, strict=True):
        went_T = logprobs(policy.model, item, item.student) - old_T
        gap_T = logprobs(read_only(base), item, item.teachers[0]) - old_T
        along += float((went_T * gap_T).mean())
        wanted += float((gap_T * gap_T).mean())
    assert along > 0
    assert found["way_to_teacher"] == pytest.approx(along / wanted, rel=1e-9)


def test_without_a_teacher_that_wants_a_change_there_is_no_way(base: Path, renderer: Renderer) -> None:
    items = hinted(renderer)
    assert (
        way_of(base, base, [replace(item, teachers=(item.student,), hints=("",)) for item in items]) is None
    )
    assert way_of(base, base, [replace(item, teachers=(), hints=(), reward=1.0) for item in items]) is None


@pytest.mark.parametrize("settings", [{"loss_backend": "plain"}, {"micro_batch_tokens": 1}])
def test_neither_passes_nor_heads_change_it(
    settings: dict[str, object], student: Path, base: Path, renderer: Renderer
) -> None:
    items = hinted(renderer)
    other = way_of(student, base, items, replace(EXACT, **settings))  # type: ignore[arg-type]
    assert other == pytest.approx(way_of(student, base, items), rel=1e-6)


def test_the_share_is_one_at_the_teacher_and_nothing_across_the_way() -> None:
    old, gap = [-1.0, -2.0, -0.5, -3.0], [-1.0, 0.5, 2.0, -0.1]
    sample = Sample(
        ids_T=torch.arange(4),
        mask_T=torch.ones(4, dtype=torch.bool),
        behaviour_T=None,
        tau=0.7,
        advantage=None,
        hints=1,
    )
    zeros_T = torch.zeros(4, dtype=torch.float64)
    tokens = TokenTargets(
        ids_N=sample.ids_T,
        old_N=torch.tensor(old, dtype=torch.float64),
        gap_N=torch.tensor(gap, dtype=torch.float64),
        advantage_N=zeros_T,
        correction_N=zeros_T,
        kept=None,
    )
    target = Target(tokens=tokens, hint_T=torch.zeros(4, dtype=torch.int64), mismatch_T=None)

    def at(change: list[float]) -> float:
        along, wanted = _way(tokens.old_N + torch.tensor(change, dtype=torch.float64), sample, target)
        return along / wanted

    assert at([0.0] * 4) == 0.0
    assert at(gap) == pytest.approx(1.0)
    assert at([0.25 * each for each in gap]) == pytest.approx(0.25)
    assert at([-each for each in gap]) == pytest.approx(-1.0)
    assert at([0.5, 1.0, 0.0, 0.0]) == pytest.approx(0.0), "a change that the teacher does not want"
