"""A policy from disk into all ranks: only rank 0 reads versions."""

from __future__ import annotations

from afterwit.checkpoints import Versions
from afterwit.learner.policy import Policy
from afterwit.learner.ranks.orders import Load
from afterwit.learner.ranks.ranks import Ranks
from afterwit.learner.ranks.weights import given
from afterwit.learner.settings import LearnerSettings


def load(versions: Versions, number: int, settings: LearnerSettings, ranks: Ranks) -> Policy:
    """`Policy.load`, in all ranks."""
    with ranks.leading(Load(number=number, settings=settings)):
        with ranks.together():
            policy = Policy.load(versions, number, settings)
        if ranks.size > 1:
            given(policy, ranks)
    return policy
