"""A policy from disk into all ranks, and back: of whole weights only rank 0 reads and writes."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedModel

from afterwit.checkpoints import Versions
from afterwit.core.version import Probe
from afterwit.learner.policy import Policy
from afterwit.learner.ranks.orders import Load, Probed, Write
from afterwit.learner.ranks.ranks import Ranks
from afterwit.learner.ranks.weights import given, sharded
from afterwit.learner.scoring import probe
from afterwit.learner.settings import LearnerSettings
from afterwit.learner.update import Phase, Progress


def load(
    versions: Versions,
    number: int,
    settings: LearnerSettings,
    ranks: Ranks,
    *,
    base: PreTrainedModel | None = None,
) -> Policy:
    """`Policy.load`, in all ranks."""
    order = Load(number=number, settings=settings, versions=versions, keeps_base=base is not None)
    with ranks.leading(order):
        if ranks.lockstep:
            return sharded(versions, number, settings, ranks)
        with ranks.together():
            policy = Policy.load(versions, number, settings, base=base)
        if ranks.size > 1:
            given(policy, ranks)
    return policy


def probed(policy: Policy, ranks: Ranks) -> Probe:
    """The policy's probe."""
    if not ranks.lockstep:
        return probe(policy.model)
    order = Probed()
    with ranks.leading(order):
        return order.run(policy, ranks)


def write(policy: Policy, folder: Path, base: Path, progress: Progress, ranks: Ranks) -> None:
    """Write weights, then the learner's state, into a version's folder."""
    if ranks.lockstep:
        order = Write(folder=folder, base=base)
        with ranks.leading(order):
            order.run(policy, progress, ranks)
        return
    policy.trained.write(folder, base)
    progress(Phase.WRITING)
    policy.save_state(folder)
