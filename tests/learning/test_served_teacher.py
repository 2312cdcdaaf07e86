"""A teacher on a server: an update learns from its top-K what it would learn from all of its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Ids, Scored
from afterwit.engines.teacher import given_ids, require_servable
from afterwit.errors import SettingError
from afterwit.learning.batch import Item, log_mass, temperature_of
from afterwit.learning.passes import Row, response_logits
from afterwit.learning.policy import FrozenModels
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import update
from afterwit.objective.settings import OBJECTIVES, SUBSETS, ObjectiveSettings
from afterwit.objective.terms import top_k
from afterwit.turn import Basis
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted
from tests.learning.updates import EXACT, furthest, items_of, policy_of, quiet, read_only, weights
from tests.products import diagonal, some

SERVED = replace(EXACT, teacher="server")
SERVABLE = [
    ObjectiveSettings(objective="token_opd", beta=0.1),
    ObjectiveSettings(subset="overlap", beta=0.1, hint_selection="token_optimal"),
    ObjectiveSettings(subset="overlap", objective="topk_opd", tail_bucket=True, beta=0),
    ObjectiveSettings(subset="teacher", beta=0.1, k=7),
    ObjectiveSettings(subset="student", beta=0.1),
    ObjectiveSettings(subset="student", objective="topk_opd", hint_selection="sequence_optimal", k=7, beta=0),
]
NAMED = {f"{objective.objective}-{objective.subset}": objective for objective in SERVABLE}


class FromLogits:
    """Implements `TeacherServer` with a model that lies here."""

    context_length = 512

    def __init__(self, folder: Path, k: int) -> None:
        self._model, self._k = read_only(folder), k

    def open(self) -> None: ...

    def score(
        self, rows: Sequence[tuple[Ids, Ids]], at: Sequence[Sequence[Ids]] | None = None
    ) -> list[Scored]:
        return [self._score(*row, ids) for row, ids in zip(rows, at or [()] * len(rows), strict=True)]

    def _score(self, prompt: Ids, response: Ids, at: Sequence[Ids]) -> Scored:
        (logits_TV,) = response_logits(self._model, [Row(prompt=prompt, response=response)])
        logprobs_TV, ids_TK = logits_TV.log_softmax(-1), top_k(logits_TV, self._k)
        return Scored(
            version=0,
            logprobs=tuple(logprobs_TV.gather(-1, torch.tensor(response)[:, None])[:, 0].tolist()),
            top_ids=tuple(map(tuple, ids_TK.tolist())),
            top_logprobs=tuple(map(tuple, logprobs_TV.gather(-1, ids_TK).tolist())),
            asked_ids=tuple(at),
            asked=tuple(map(tuple, logprobs_TV.gather(-1, torch.tensor(at)).tolist())) if at else (),
        )


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reweighted(tmp_path_factory.mktemp("student"), base, seed=3)


def batch(
    renderer: Renderer, objective: ObjectiveSettings, *, tau: float = 1.0, basis: Basis = Basis.RAW
) -> list[Item]:
    """Turns with one hint, with several and without; the last one's log-probs are of `basis`."""
    samples = [
        a_sample(renderer, 0, reward=-1, tau=tau),
        a_sample(renderer, 1, reward=1, hints=() if objective.has_rl else ("Say it in one word.",), tau=tau),
        a_sample(renderer, 2, reward=1, basis=basis, tau=tau, hints=("Stop.", "Only stop when done.")),
    ]
    return items_of(samples, renderer, objective)


@pytest.mark.parametrize(("objective", "head"), some(2, diagonal(NAMED, ["fused", "plain"])))
def test_it_teaches_exactly_what_the_same_model_teaches_here(
    objective: ObjectiveSettings, head: str, student: Path, base: Path, renderer: Renderer
) -> None:
    """Fused and packed, or plain; the base, by its logits or by its top-K alone."""

    def learned(settings: LearnerSettings) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        policy, settings = policy_of(student, settings), replace(settings, loss_backend=head)
        models = FrozenModels(base, settings, server=FromLogits(base, objective.ids_kept))
        metrics, _ = update(policy, models, batch(renderer, objective), objective, settings, quiet)
        return weights(policy), metrics

    (here, of_here), (served, of_served) = learned(EXACT), learned(SERVED)
    assert of_served == pytest.approx(of_here, rel=1e-6, abs=1e-9)
    assert furthest(here, served) < 1e-4 * EXACT.lr
    assert furthest(here, weights(policy_of(student))) > 0.1 * EXACT.lr


@pytest.mark.parametrize(("objective", "basis"), some(3, diagonal(NAMED, Basis)))
def test_a_turn_that_was_sampled_cooler_learns_at_its_own_temperature_all_the_same(
    objective: ObjectiveSettings, basis: Basis, student: Path, base: Path, renderer: Renderer
) -> None:
    """The server returns all ids here, so that nothing is estimated."""
    items = batch(renderer, objective, tau=0.6, basis=basis)

    def learned(settings: LearnerSettings) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        policy = policy_of(student, settings)
        models = FrozenModels(base, settings, server=FromLogits(base, 457))
        metrics, _ = update(policy, models, items, objective, settings, quiet)
        return weights(policy), metrics

    (here, of_here), (served, of_served) = learned(EXACT), learned(SERVED)
    assert of_served == pytest.approx(of_here, rel=1e-5, abs=1e-7)
    assert furthest(here, served) < 1e-3 * EXACT.lr


@pytest.mark.parametrize(
    ("temperature", "tau"), [(0.0, 1.0), (0.005, 1.0), (0.6, 0.6), (1.0, 1.0), (1.4, 1.0)]
)
def test_a_servers_scores_are_brought_to_the_turns_temperature_up_to_one(
    temperature: float, tau: float
) -> None:
    assert temperature_of(temperature) == tau


@pytest.mark.parametrize("tau", [0.05, 0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("told", [4, 20, 457])
def test_the_mass_at_another_temperature_lies_between_its_bounds_and_is_exact_where_all_is_told(
    tau: float, told: int
) -> None:
    """Lower bound: other ids have zero mass; upper bound: each has as much as the last returned id."""
    logits_TV = torch.randn(200, 457, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits_TV *= torch.linspace(0.0, 12.0, 200)[:, None]
    logprobs_TV = logits_TV.log_softmax(-1)
    exact_T = (logprobs_TV / tau).logsumexp(-1)
    likeliest_TK = logprobs_TV.topk(told).values
    found_T = log_mass(likeliest_TK, tau)
    rest_T = (1.0 - likeliest_TK.exp().sum(-1)).clamp(min=0.0)
    least_T = (likeliest_TK / tau).logsumexp(-1)
    most_T = (least_T.exp() + rest_T * likeliest_TK[:, -1].exp().pow(1.0 / tau - 1.0)).log()
    assert bool((found_T >= least_T - 1e-12).all() and (found_T <= most_T + 1e-12).all())
    if told == 457 or tau == 1.0:
        assert found_T.tolist() == pytest.approx(exact_T.tolist(), abs=1e-9)
    assert (found_T - exact_T).abs().mean() <= (least_T - exact_T).abs().mean() + 1e-12


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
    with pytest.raises(SettingError, match=rf"{name}.*returns only a few ids.*hybrid.*token_opd"):
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
