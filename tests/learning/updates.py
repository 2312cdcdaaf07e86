"""One update in float64, ready to compare: items from samples, a policy from a folder, its weights after."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions
from afterwit.judging.hinted_prompts import Placement
from afterwit.learning.batch import Item, TurnLimits, build_items
from afterwit.learning.models import FullWeights, Masters, load_model
from afterwit.learning.passes import Phase
from afterwit.learning.policy import FrozenModels, Policy
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import update
from afterwit.objective.settings import ObjectiveSettings
from afterwit.verdict import JudgedTurn
from afterwit.version import Origin, Probe, Version

EXACT = LearnerSettings(
    dtype="float64", device="cpu", lr=1e-3, lora_rank=0, max_move=0.0, stop_at_teacher=False
)
LIMITS = TurnLimits(max_tokens=512, max_staleness=16, version=0, chain=(0,))


def quiet(phase: Phase) -> None:
    """Ignore the progress."""


def policy_of(folder: Path, settings: LearnerSettings = EXACT) -> Policy:
    return Policy.load(Versions(root=folder / "none", base=folder), 0, settings)


def adapter_of(folder: Path, base: Path, settings: LearnerSettings) -> Policy:
    """The policy at a version whose folder is a copy of this adapter's."""
    versions = Versions(root=folder.parent / f"versions of {folder.name}", base=base)
    if not versions.numbers():
        probe = Probe(ids=(1, 2), logprobs=(-1.0,))
        version = Version(number=1, parent=0, origin=Origin.UPDATE, created=1.0, probe=probe)
        versions.write(version, lambda place: shutil.copytree(folder, place, dirs_exist_ok=True) and None)
    return Policy.load(versions, versions.newest(), settings)


def frozen(folder: Path, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    return load_model(folder, dtype=dtype, device=torch.device("cpu")).requires_grad_(False)


read_only = cache(frozen)
"""The same, loaded once for all tests that leave it unchanged."""


class Given(FrozenModels):
    """Frozen models of which the base is this one."""

    def __init__(self, model: PreTrainedModel | None, settings: LearnerSettings = EXACT) -> None:
        super().__init__(Path(), settings)
        self._model_given = model

    def base(self, policy: object) -> PreTrainedModel:
        assert self._model_given is not None, "the base is read"
        return self._model_given


def items_of(samples: Sequence[JudgedTurn], renderer: Renderer, objective: ObjectiveSettings) -> list[Item]:
    items, refused = build_items(samples, renderer, Placement.LAST_USER, LIMITS, objective)
    assert not refused
    return items


def weights(policy: Policy) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.masters.named.items()}


def moved(
    student: Path,
    base: Path,
    items: Sequence[Item],
    objective: ObjectiveSettings,
    settings: LearnerSettings = EXACT,
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The weights after one update from `student`, with the frozen `base`; and its metrics."""
    policy = policy_of(student, settings) if settings.dtype != EXACT.dtype else _again(student, settings)
    metrics, _ = update(policy, Given(read_only(base), settings), items, objective, settings, quiet)
    return weights(policy), metrics


def _again(folder: Path, settings: LearnerSettings) -> Policy:
    """`policy_of` in a model that an earlier update has moved: it is loaded and tested once a folder."""
    model, start = _loaded(folder)
    with torch.no_grad():
        for name, own in model.named_parameters():
            own.copy_(start[name])
            own.grad = None
    return Policy.of(FullWeights(model=model, masters=Masters(model)), {}, folder, 0, settings)


@cache
def _loaded(folder: Path) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    """A folder's model, and its weights as they are there."""
    model = load_model(folder, dtype=torch.float64, device=torch.device("cpu"))
    return model, {name: own.detach().clone() for name, own in model.named_parameters()}


def furthest(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest difference of any weight."""
    return max((one[name] - other[name]).abs().max().item() for name in one)
