"""Self-test of the learned versions on disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from afterwit.apps.doctor.finding import Finding, tested
from afterwit.checkpoints import Versions


def check(versions: Versions) -> Iterator[Finding]:
    """Whether every file of every version whose weights are kept is as the learner wrote it."""
    kept = [number for number in versions.numbers() if number > 0 and versions.has_weights(number)]
    for number in kept:
        yield tested(
            f"version {number}",
            partial(_verified, versions, number),
            remedy="the version is not served, and the learner waits until this is done",
        )


def _verified(versions: Versions, number: int) -> str:
    versions.verify(number)
    return "its files are as the learner wrote them"
