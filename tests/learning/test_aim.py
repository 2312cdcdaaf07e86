"""An update that aims at a share of the way to the teacher: its measure, its bound and its limits."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.optim import AdamW

from afterwit.chat_format.render import Renderer
from afterwit.learning.aim import CLOSE, LONGEST, REACH, Moved, factor, item_moved, kept, mean, stretch
from afterwit.learning.batch import Item
from afterwit.learning.distributed.orders import updated
from afterwit.learning.distributed.ranks import ALONE
from afterwit.learning.policy import Policy
from afterwit.learning.rerun import settings_of
from afterwit.learning.score import response_logits
from afterwit.learning.settings import LearnerSettings
from afterwit.objective.logprobs import TokenTargets
from afterwit.objective.sample import Sample
from afterwit.objective.sample_loss import Target
from afterwit.objective.settings import ObjectiveSettings
from afterwit.version import Origin, Probe, Recipe, Version
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import reweighted
from tests.learning.updates import EXACT, Given, furthest, items_of, policy_of, quiet, read_only, weights

DISTILLED = ObjectiveSettings(objective="token_opd", beta=0.0)
"""It moves the sampled ids, here noise that top-K OPD would not see, and so the way that is measured."""
FAR = replace(EXACT, weight_decay=0.0, target_share=0.3, target_kl=10.0)


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


def run(
    policy: Policy,
    base: Path,
    items: list[Item],
    settings: LearnerSettings,
    objective: ObjectiveSettings = DISTILLED,
) -> dict[str, float]:
    """The metrics of an update, as a version has them."""
    models = Given(read_only(base), settings)
    return updated(policy, models, items, objective, settings, quiet, ALONE)[0]


def at_aim(
    student: Path,
    base: Path,
    items: list[Item],
    settings: LearnerSettings,
    objective: ObjectiveSettings = DISTILLED,
) -> tuple[dict[str, Tensor], dict[str, float], dict[str, Tensor]]:
    """The weights before an update and after it, and its metrics."""
    policy = policy_of(student, settings)
    before = weights(policy)
    metrics = run(policy, base, items, settings, objective)
    return before, metrics, weights(policy)


def test_an_update_goes_the_share_of_the_way_that_it_aims_at(
    student: Path, base: Path, renderer: Renderer
) -> None:
    """By a measurement of its own: whole passes of the models, no code of the learner."""
    items = hinted(renderer)
    for aim in (0.1, 0.3):
        settings = replace(FAR, target_share=aim)
        policy = policy_of(student, settings)
        old = [_logprobs(policy.model, item, item.student) for item in items]
        found = run(policy, base, items, settings)
        along = wanted = 0.0
        for item, old_T in zip(items, old, strict=True):
            went_T = _logprobs(policy.model, item, item.student) - old_T
            gap_T = _logprobs(read_only(base), item, item.teachers[0]) - old_T
            along += float((went_T * gap_T).mean())
            wanted += float((gap_T * gap_T).mean())
        assert found["way_to_teacher"] == pytest.approx(along / wanted, rel=1e-9)
        assert aim * (1 - CLOSE) <= along / wanted <= aim * (1 + CLOSE)


@torch.no_grad()
def _logprobs(model: torch.nn.Module, item: Item, row: object) -> Tensor:
    (logits_TV,) = response_logits(model, [row])  # type: ignore[arg-type,list-item]
    ids_T = torch.tensor(item.student.response)
    return (logits_TV / item.behaviour.tau).log_softmax(-1).gather(-1, ids_T[:, None])[:, 0]


@pytest.mark.parametrize("bound", [1e-2, 1e-4, 1e-8])
def test_no_update_goes_beyond_the_bound_on_the_kl(
    bound: float, student: Path, base: Path, renderer: Renderer
) -> None:
    settings = replace(FAR, target_share=1.0, target_kl=bound, lr=1e-2)
    items = hinted(renderer)
    policy = policy_of(student, settings)
    old = [_logprobs(policy.model, item, item.student) for item in items]
    metrics = run(policy, base, items, settings)
    apart = [
        float(((_logprobs(policy.model, item, item.student) - old_T) ** 2 / 2).mean())
        for item, old_T in zip(items, old, strict=True)
    ]
    assert metrics["update_kl"] == pytest.approx(sum(apart) / len(apart), rel=1e-6, abs=1e-15)
    assert 0.0 < sum(apart) / len(apart) <= bound


@pytest.mark.parametrize("aim", [1e-2, 1e-3, 1e-5])
def test_a_step_at_the_aim_is_the_published_one_of_another_length(
    aim: float, student: Path, base: Path, renderer: Renderer
) -> None:
    """Down to an aim that changes nothing."""
    items = hinted(renderer)
    before, _, whole = at_aim(student, base, items, replace(FAR, target_share=0.0))
    _, metrics, found = at_aim(student, base, items, replace(FAR, target_share=aim))
    length = metrics["step_length"]
    expected = {name: old + length * (whole[name] - old) for name, old in before.items()}
    assert furthest(found, expected) < 1e-9
    assert metrics["way_to_teacher"] == pytest.approx(aim, rel=1.5 * CLOSE)
    assert furthest(found, before) < aim


def test_rates_far_apart_go_the_same_way(student: Path, base: Path, renderer: Renderer) -> None:
    """A step that is too short is made longer, by no more than `LONGEST` times."""
    items = hinted(renderer)
    low = replace(FAR, lr=FAR.rate / 4)
    _, short, usual = at_aim(student, base, items, low)
    assert 2.0 < short["step_length"] < LONGEST
    for times in (4, 16):
        _, metrics, found = at_aim(student, base, items, replace(low, lr=times * low.rate))
        assert metrics["way_to_teacher"] == pytest.approx(FAR.target_share, rel=1.5 * CLOSE)
        assert times * metrics["step_length"] == pytest.approx(short["step_length"], rel=2 * CLOSE)
        assert furthest(found, usual) < 2 * CLOSE * short["step_length"] * low.rate
    _, metrics, _ = at_aim(student, base, items, replace(FAR, lr=1e-9))
    assert metrics["step_length"] == LONGEST


def test_a_student_that_is_its_teacher_is_not_moved(base: Path, renderer: Renderer) -> None:
    empty = [replace(item, teachers=(item.student,), hints=("",)) for item in hinted(renderer)]
    before, metrics, after = at_aim(base, base, empty, FAR)
    assert "way_to_teacher" not in metrics
    assert furthest(before, after) < 1e-6


def test_a_batch_without_hints_takes_one_step_within_the_bound(
    student: Path, base: Path, renderer: Renderer
) -> None:
    plain = [replace(item, teachers=(), hints=(), reward=1.0) for item in hinted(renderer)]
    objective = ObjectiveSettings(w_rl=1.0, beta=0.1)
    _, metrics, _ = at_aim(student, base, plain, replace(FAR, target_kl=1e-5), objective)
    assert 0.0 < metrics["update_kl"] <= 1e-5
    assert "way_to_teacher" not in metrics


@pytest.mark.parametrize("settings", [replace(FAR, loss_backend="plain"), replace(FAR, micro_batch_tokens=1)])
def test_neither_passes_nor_heads_change_the_outcome(
    settings: LearnerSettings, student: Path, base: Path, renderer: Renderer
) -> None:
    items = hinted(renderer)
    _, metrics, found = at_aim(student, base, items, FAR)
    _, of_other, other = at_aim(student, base, items, settings)
    assert furthest(found, other) < 1e-7
    assert of_other["way_to_teacher"] == pytest.approx(metrics["way_to_teacher"], rel=1e-6)


def test_an_update_from_before_there_was_an_aim_had_none() -> None:
    """So that it is run again as it was."""
    known = {name: value for name, value in asdict(EXACT).items() if not name.startswith("target_")}
    recipe = Recipe(learner=known, objective=asdict(ObjectiveSettings()), placement="last_user", digests={})
    probe = Probe(ids=(1, 2), logprobs=(-1.0,))
    version = Version(number=1, parent=0, origin=Origin.UPDATE, created=1.0, probe=probe, recipe=recipe)
    assert settings_of(version)[0] == EXACT


def test_several_steps_over_a_batch_and_an_aim_are_refused_together() -> None:
    with pytest.raises(ValueError, match=r"epochs is 2, but target_share is 0\.3.*set target_share = 0"):
        replace(FAR, epochs=2)


@given(share=st.floats(-0.5, 3), kl=st.floats(0, 5))
def test_a_step_is_made_as_long_as_the_aim_and_the_bound_allow(share: float, kl: float) -> None:
    """Where the share grows with it, and the KL with its square."""
    at = Moved(share=share, kl=kl)
    longer, part = factor(at, share=0.3, kl=0.03), kept(at, share=0.3, kl=0.03)
    assert 1.0 <= longer <= LONGEST
    assert 0.0 < part <= 1.0
    assert 1.0 in (longer, part)
    assert part * share <= 0.3 * (1 + CLOSE) + 1e-9
    assert part**2 * kl <= 0.03 + 1e-9
    if longer > 1.0:
        assert 0.0 < longer * share <= 0.3 + 1e-9
        assert longer**2 * kl <= REACH * 0.03 + 1e-9
    assert (part == 1.0) == (share <= 0.3 * (1 + CLOSE) and kl <= 0.03)


def _target(old: list[float], gap: list[float]) -> tuple[Sample, Target]:
    count = len(old)
    sample = Sample.sampled_at(
        0.7,
        tau=None,
        ids_T=torch.arange(count),
        mask_T=torch.ones(count, dtype=torch.bool),
        behaviour_T=None,
        basis="processed",
        advantage=None,
        hints=1,
        teacher_rows=(),
    )
    zeros_T = torch.zeros(count, dtype=torch.float64)
    tokens = TokenTargets(
        ids_N=sample.ids_T,
        old_N=torch.tensor(old, dtype=torch.float64),
        gap_N=torch.tensor(gap, dtype=torch.float64),
        advantage_N=zeros_T,
        correction_N=zeros_T,
        kept=None,
    )
    return sample, Target(
        tokens=tokens, hint_T=torch.zeros(count, dtype=torch.int64), overlap_T=None, mismatch_T=None
    )


def test_the_share_is_one_at_the_teacher_and_nothing_across_the_way() -> None:
    old, gap = [-1.0, -2.0, -0.5, -3.0], [-1.0, 0.5, 2.0, -0.1]
    sample, target = _target(old, gap)

    def at(change: list[float]) -> Moved:
        now_T = target.tokens.old_N + torch.tensor(change, dtype=torch.float64)
        return mean([item_moved(now_T, sample, target)])

    assert at([0.0] * 4) == Moved(share=0.0, kl=0.0)
    assert at(gap).share == pytest.approx(1.0)
    assert at([0.25 * each for each in gap]).share == pytest.approx(0.25)
    assert at([-each for each in gap]).share == pytest.approx(-1.0)
    assert at([0.5, 1.0, 0.0, 0.0]).share == pytest.approx(0.0), "a change that the teacher does not want"
    assert at([0.2, 0.0, 0.0, -0.4]).kl == pytest.approx((0.04 + 0.16) / 2 / 4)


def test_a_step_gets_another_length_without_a_copy_of_the_weights_before_it() -> None:
    generator = torch.Generator().manual_seed(1)
    for decay in (0.0, 0.1):
        matrix = torch.nn.Parameter(torch.randn(5, 3, dtype=torch.float64, generator=generator))
        idle = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
        optimizer = AdamW([matrix, idle], lr=1e-2, betas=(0.9, 0.98), weight_decay=decay)
        for _ in range(3):
            before = matrix.detach().clone()
            matrix.grad = torch.randn(5, 3, dtype=torch.float64, generator=generator)
            optimizer.step()
        whole = matrix.detach() - before
        was = 1.0
        for part in (0.25, 0.7, 6.0, 0.0, 1.0):
            stretch(optimizer, was, part)
            assert torch.allclose(matrix, before + part * whole, rtol=0, atol=1e-14)
            was = part
        assert torch.equal(idle, torch.ones(2, dtype=torch.float64))
