"""Self-test of the learned versions on disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from afterwit.apps.doctor.finding import Finding, tested
from afterwit.checkpoints import SharedVersions, Versions


def check(versions: Versions) -> Iterator[Finding]:
    """Whether the place that machines share versions at can be used, and every file of every version whose
    weights are on this disk is as the learner wrote it."""
    if isinstance(versions, SharedVersions):
        yield tested(
            "versions.url", partial(_shared, versions), remedy="nothing is learned until this is done"
        )
    for number in filter(versions.on_disk, versions.numbers()):
        yield tested(
            f"version {number}",
            partial(_verified, versions, number),
            remedy="the version is not served, and the learner waits until this is done",
        )


def _shared(versions: SharedVersions) -> str:
    versions.remote.check()
    versions.follow()
    return f"{versions.remote.place} takes, gives and deletes; version {versions.newest()} is the newest"


def _verified(versions: Versions, number: int) -> str:
    versions.verify(number)
    return "its files are as the learner wrote them"
