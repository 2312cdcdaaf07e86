"""A teacher on a server: an update learns from its top-K what it would learn from all of its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from afterwit.core.errors import SettingError
from afterwit.core.teacher import Ids, TeacherScores
from afterwit.core.turn import Basis
from afterwit.learner.batch import Item
from afterwit.learner.parameters import FrozenModels
from afterwit.learner.scoring import Row, response_logits
from afterwit.learner.served import given_ids, require_servable
from afterwit.learner.settings import LearnerSettings
from afterwit.learner.update import update
from afterwit.objective.choices.objectives import OBJECTIVES
from afterwit.objective.choices.subsets import SUBSETS
from afterwit.objective.logprobs import top_k
from afterwit.objective.sample import Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.wire.model_text.render import Renderer
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted
from tests.learner.updates import EXACT, furthest, items_of, policy_of, quiet, read_only, weights

SERVED = replace(EXACT, teacher="server")
SERVABLE = [
    ObjectiveSettings(objective="token_opd", beta=0.1),
    ObjectiveSettings(subset="overlap", beta=0.1, hint_selection="token_optimal"),
    ObjectiveSettings(subset="overlap", objective="topk_opd", tail_bucket=True, beta=0),
    ObjectiveSettings(subset="teacher", beta=0.1, k=7),
    ObjectiveSettings(subset="student", beta=0.1),
    ObjectiveSettings(subset="student", objective="topk_opd", hint_selection="sequence_optimal", k=7, beta=0),
]
IDS = [f"{objective.objective}-{objective.subset}" for objective in SERVABLE]


class FromLogits:
    """Implements `TeacherServer` with a model that lies here."""

    context_length = 512

    def __init__(self, folder: Path, k: int) -> None:
        self._model, self._k = read_only(folder), k

    def open(self) -> None: ...

    def score(
        self, rows: Sequence[tuple[Ids, Ids]], at: Sequence[Sequence[Ids]] | None = None
    ) -> list[TeacherScores]:
        return [self._score(*row, ids) for row, ids in zip(rows, at or [()] * len(rows), strict=True)]

    def _score(self, prompt: Ids, response: Ids, at: Sequence[Ids]) -> TeacherScores:
        (logits_TV,) = response_logits(self._model, [Row(prompt=prompt, response=response)])
        logprobs_TV, ids_TK = logits_TV.log_softmax(-1), top_k(logits_TV, self._k)
        return TeacherScores(
            sampled=tuple(logprobs_TV.gather(-1, torch.tensor(response)[:, None])[:, 0].tolist()),
            ids=tuple(map(tuple, ids_TK.tolist())),
            logprobs=tuple(map(tuple, logprobs_TV.gather(-1, ids_TK).tolist())),
            asked_ids=tuple(at),
            asked=tuple(map(tuple, logprobs_TV.gather(-1, torch.tensor(at)).tolist())) if at else (),
        )


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reweighted(tmp_path_factory.mktemp("student"), base, seed=3)


def batch(renderer: Renderer, objective: ObjectiveSettings) -> list[Item]:
    """Turns of temperature 1, with one hint, with several and without."""
    samples = [
        a_sample(renderer, 0, reward=-1, tau=1.0),
        a_sample(renderer, 1, reward=1, hints=() if objective.has_rl else ("Say it in one word.",), tau=1.0),
        a_sample(renderer, 2, reward=1, basis=Basis.RAW, tau=1.0, hints=("Stop.", "Only stop when done.")),
    ]
    return items_of(samples, renderer, objective)


@pytest.mark.parametrize("head", ["fused", "plain"])
@pytest.mark.parametrize("objective", SERVABLE, ids=IDS)
def test_it_teaches_exactly_what_the_same_model_teaches_here(
    objective: ObjectiveSettings, head: str, student: Path, base: Path, renderer: Renderer
) -> None:
    """Fused and packed, or plain; the base, by its logits or by its top-K alone."""

    def learned(settings: LearnerSettings) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        policy, settings = policy_of(student, settings), replace(settings, head=head)
        models = FrozenModels(base, settings, server=FromLogits(base, objective.ids_kept))
        metrics = update(policy, models, batch(renderer, objective), objective, settings, quiet)
        return weights(policy), metrics

    (here, of_here), (served, of_served) = learned(EXACT), learned(SERVED)
    assert of_served == pytest.approx(of_here, rel=1e-6, abs=1e-9)
    assert furthest(here, served) < 1e-4 * EXACT.lr
    assert furthest(here, weights(policy_of(student))) > 0.1 * EXACT.lr


@pytest.mark.parametrize(
    ("temperature", "basis", "corrected"),
    [(1.0, "processed", True), (0.6, "processed", False), (0.6, "raw", True), (0.0, "raw", False)],
)
def test_all_is_scored_at_one_and_corrected_only_on_one_basis(
    temperature: float, basis: str, corrected: bool
) -> None:
    sample = Sample.sampled_at(
        temperature,
        ids_T=torch.tensor([1, 2]),
        mask_T=torch.tensor([True, True]),
        behaviour_T=torch.tensor([-1.0, -2.0]),
        basis=basis,
        scored_at_one=True,
        advantage=None,
        hints=1,
    )
    assert sample.tau == 1.0
    assert (sample.behaviour_T is not None) is corrected


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("subset", SUBSETS)
def test_an_objective_that_reads_more_than_a_few_ids_is_refused_with_what_would_do(
    name: str, subset: str
) -> None:
    objective = ObjectiveSettings(objective=name, subset=subset)
    assert bool(given_ids(objective)) == (name in ("hybrid", "topk_opd") and subset == "student")
    if name in ("hybrid", "topk_opd", "token_opd", "hybrid_token", "rl"):
        require_servable(objective)
        return
    with pytest.raises(SettingError, match=rf"{name}.*tells a few ids.*hybrid.*token_opd"):
        require_servable(objective)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"reference": "server"}, "reference is 'server'"),
        ({"teacher_url": "http://127.0.0.1:8000"}, "teacher_url is given, but teacher is 'base'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LearnerSettings(**settings)
