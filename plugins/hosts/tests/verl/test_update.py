"""An update by verl's engine is the learner's own: gradient and weights, to float32's rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from afterwit.chat_format.render import Renderer
from afterwit.errors import SettingError, UpdateRefused
from afterwit.learning.batch import Item
from afterwit.learning.policy import Policy
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import UpdateState, accumulate, update, update_state
from afterwit.objective.settings import ObjectiveSettings
from tests.fakes.models import reweighted
from tests.learning.test_update import batch
from tests.learning.updates import EXACT, Given, furthest, policy_of, quiet, read_only, weights

pytest.importorskip("verl", reason="verl is in no extra: `make test-verl` installs it apart")
SINGLE = replace(EXACT, dtype="float32", loss_backend="plain", packing="off", micro_batch_tokens=60)
OBJECTIVES = [
    ObjectiveSettings(beta=0.1, entropy_coef=0.01),
    ObjectiveSettings(objective="token_opd", hint_selection="longest", beta=0),
    ObjectiveSettings(objective="topk_distill", beta=0),
    ObjectiveSettings(objective="combine", w_rl=0.5, baseline="running"),
    ObjectiveSettings(objective="rl", baseline="running", aggregation="batch"),
]
NAMES = [objective.objective for objective in OBJECTIVES]


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has moved away from the base."""
    return reweighted(tmp_path_factory.mktemp("student"), base, seed=3)


@pytest.fixture
def in_verl() -> Callable[..., Policy]:
    """A folder's policy in verl's engine."""
    from afterwit.checkpoints.versions import Versions
    from afterwit_hosts.verl.policy import Options, load

    def made(folder: Path, settings: LearnerSettings = SINGLE, **options: Any) -> Policy:
        return load(Versions(root=folder / "none", base=folder), 0, settings, Options(**options))

    return made


def state_of(policy: Policy, base: Path, items: list[Item], objective: ObjectiveSettings) -> UpdateState:
    frozen = Given(read_only(base, torch.float32), SINGLE)
    return update_state(policy, frozen, items, objective, SINGLE)


def whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().full_tensor() for name, tensor in tensors.items()}  # type: ignore[attr-defined]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=NAMES)
def test_gradient_and_terms_are_the_learners(
    student: Path,
    base: Path,
    renderer: Renderer,
    objective: ObjectiveSettings,
    in_verl: Callable[..., Policy],
) -> None:
    from afterwit_hosts.verl.policy import engine_in
    from afterwit_hosts.verl.update import UpdateLoss, batch_of, rows_of

    items = batch(renderer, objective)
    ours, theirs = policy_of(student, SINGLE), in_verl(student)
    mine = state_of(ours, base, items, objective)
    terms = [accumulate(mine, part) for part in mine.passes]
    state, engine = state_of(theirs, base, items, objective), engine_in(theirs)
    loss = UpdateLoss(state, quiet)
    with engine.train_mode(zero_grad_on_exit=False):
        engine.forward_backward_batch(batch_of(rows_of(state), 60), loss)
    assert len(mine.passes) > 1
    for name in loss.terms:
        assert loss.terms[name] == pytest.approx(sum(part[name] for part in terms), abs=1e-6)
    expected = {name: master.grad for name, master in ours.masters.named.items() if master.grad is not None}
    found = whole({name: theirs.masters.named[name].grad for name in expected})  # type: ignore[misc]
    length = torch.stack([tensor.norm() for tensor in expected.values()]).norm()
    assert length > 1e-3
    assert furthest(found, expected) < 1e-6 * length


@pytest.mark.parametrize("objective", OBJECTIVES[:2], ids=NAMES[:2])
@pytest.mark.parametrize("epochs", [1, 2])
def test_the_weights_after_an_update_are_the_learners(
    student: Path,
    base: Path,
    renderer: Renderer,
    objective: ObjectiveSettings,
    epochs: int,
    in_verl: Callable[..., Policy],
) -> None:
    """Adam divides each gradient by its own size: where that is nothing but rounding, so is the step."""
    from afterwit_hosts.verl.update import epoch

    items, settings = batch(renderer, objective), replace(SINGLE, epochs=epochs)
    ours, theirs, frozen = (
        policy_of(student, settings),
        in_verl(student, settings),
        read_only(base, torch.float32),
    )
    before = weights(ours)
    expected, _ = update(ours, Given(frozen, settings), items, objective, settings, quiet)
    found, _ = update(theirs, Given(frozen, settings), items, objective, settings, quiet, epoch=epoch)
    after = whole(theirs.masters.named)  # type: ignore[arg-type]  # parameters are tensors
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert furthest(before, after) > 0.9 * settings.rate
    apart = torch.cat([(own - after[name]).abs().flatten() for name, own in weights(ours).items()])
    assert apart.square().mean().sqrt() < 0.01 * settings.rate
    if epochs == 1:  # a second one begins where the first one's rounding led
        assert (apart > 1e-3 * settings.rate).double().mean() < 1e-3
    assert theirs.reward_mean == ours.reward_mean


def test_a_gradient_that_is_not_finite_takes_no_step(
    student: Path, base: Path, renderer: Renderer, in_verl: Callable[..., Policy]
) -> None:
    from afterwit_hosts.verl.update import epoch

    objective = OBJECTIVES[0]
    policy = in_verl(student)
    with torch.no_grad():
        next(iter(policy.masters.named.values())).mul_(torch.inf)
    items, frozen = batch(renderer, objective), Given(read_only(base, torch.float32), SINGLE)
    with pytest.raises(UpdateRefused, match="no step was taken"):
        update(policy, frozen, items, objective, SINGLE, quiet, epoch=epoch)
    assert not policy.optimizer.state


def test_an_option_that_verl_does_not_know_is_refused(base: Path, in_verl: Callable[..., Policy]) -> None:
    with pytest.raises(SettingError, match="verl refuses its options"):
        in_verl(base, engine={"shards": 3})
