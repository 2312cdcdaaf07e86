"""Self-tests of the mathematics hold for a sound learner and fail for a broken one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from afterwit.checkpoints.versions import Versions
from afterwit.doctor import mathematics
from afterwit.doctor.finding import Finding
from afterwit.judging.hinted_prompts import Placement
from afterwit.learning.policy import FrozenModels
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Trainer
from afterwit.objective import ObjectiveSettings
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import tiny_qwen3
from tests.fakes.renderers import renderer_of

SETTINGS = LearnerSettings(device="cpu", lr=1e-2, max_tokens=512)


@pytest.fixture(scope="module", params=[0, 4], ids=["full", "lora"])
def learned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A learner at version 1, whose weights have left the base's."""
    base = tiny_qwen3(tmp_path_factory.mktemp("base"), num_hidden_layers=1)
    versions = Versions(root=tmp_path_factory.mktemp("versions"), base=base)
    settings = replace(SETTINGS, lora_rank=request.param)
    renderer = renderer_of(base)
    trainer = Trainer(versions, renderer, settings=settings, objective=ObjectiveSettings())
    trainer.begin(now=0.0)
    items, _ = trainer.build([a_sample(renderer, number) for number in range(2)])
    trainer.train(items, [], now=1.0, progress=lambda phase: None)
    return trainer


def found(trainer: Trainer, frozen: FrozenModels | None = None) -> dict[str, Finding]:
    renderer = renderer_of(trainer.versions.base)
    findings = mathematics.check_mathematics(trainer, renderer, Placement.LAST_USER, frozen)
    return {finding.name: finding for finding in findings}


def test_a_sound_learner_passes_all_of_them(learned: Trainer) -> None:
    assert {name: finding.seen for name, finding in found(learned).items() if not finding.ok} == {}


def test_a_base_that_has_learned_is_found_out(learned: Trainer) -> None:
    """As if the adapter had stayed on while the teacher scores."""

    class Moved(FrozenModels):
        def base(self, policy: object) -> object:
            return learned.policy().model

    broken = found(learned, Moved(learned.versions.base, learned.settings))
    assert not broken["the teacher's weights"].ok
    assert "nats from what it was" in broken["the teacher's weights"].seen


def test_a_teacher_that_is_not_the_student_is_found_out(learned: Trainer) -> None:
    class Other(FrozenModels):
        def teacher(self, policy: object) -> object:
            return learned.frozen.base(learned.policy())

    broken = found(learned, Other(learned.versions.base, learned.settings))
    assert not broken["same weights, no hint"].ok


def test_a_teacher_that_ignores_its_hint_is_found_out(learned: Trainer) -> None:
    class Deaf(FrozenModels):
        """Every prompt looks the same to it."""

        def teacher(self, policy: object) -> object:
            model = super().teacher(learned.policy())
            embedding = model.get_input_embeddings()
            even = torch.nn.Embedding.from_pretrained(torch.zeros_like(embedding.weight))
            deaf = type(model)(model.config)
            deaf.set_input_embeddings(even)
            return deaf.eval().requires_grad_(False)

    broken = found(learned, Deaf(learned.versions.base, learned.settings))
    assert not broken["teacher sensitivity"].ok
