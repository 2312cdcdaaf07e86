"""How far updates were run again, kept on disk: a learner that is stopped or killed goes on from there.

It is the policy after the first steps, as a version in a folder of its own. Its manifest names these steps by
digests, so that another plan goes on from it only if it begins with the same ones.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from afterwit.checkpoints import Versions
from afterwit.checkpoints.forgetting import Step
from afterwit.core.errors import VersionDamaged
from afterwit.core.version import Origin, Version
from afterwit.learner.policy import Policy
from afterwit.learner.ranks import Ranks
from afterwit.learner.ranks.load import load, probed, write
from afterwit.learner.settings import LearnerSettings

FOLDER = ".forgetting"
EVERY = 8
"""The policy is kept after so many updates each: with full weights it is as large as a version."""


class Halfway:
    """What an earlier run of these steps left, if anything."""

    def __init__(self, versions: Versions, start: int, steps: Sequence[Step]) -> None:
        self._kept = Versions(root=versions.root / FOLDER, base=versions.base)
        self._names = [_digest(start, versions.get(start)), *map(_digest_of, steps)]
        self.done = self._found()
        """Steps that need not be run again."""

    def _found(self) -> int:
        try:
            newest = self._kept.get(self._kept.newest())
            if newest is not None and list(newest.turns) == self._names[: len(newest.turns)]:
                self._kept.verify(newest.number)
                return len(newest.turns) - 1
        except VersionDamaged:
            pass
        drop(self._kept.root.parent)
        return 0

    def policy(self, settings: LearnerSettings, ranks: Ranks) -> Policy:
        """The policy after the steps that are done."""
        return load(self._kept, self._kept.newest(), settings, ranks)

    def keep(self, policy: Policy, done: int, ranks: Ranks) -> None:
        """Keep the policy, in place of what was kept before, if so many steps are a reason to."""
        if done % EVERY or done == len(self._names) - 1:
            return
        older = self._kept.newest()
        version = Version(
            number=older + 1,
            parent=None,
            origin=Origin.REPLAY,
            created=0.0,
            turns=tuple(self._names[: done + 1]),
            probe=probed(policy, ranks),
        )

        def fill(place: Path) -> None:
            write(policy, place, self._kept.base, lambda phase: None, ranks)

        with self._kept.writing():
            self._kept.write(version, fill)
        shutil.rmtree(self._kept.place(older), ignore_errors=True)


def drop(root: Path) -> None:
    """Delete what was kept in a folder of versions."""
    shutil.rmtree(root / FOLDER, ignore_errors=True)


def _digest_of(step: Step) -> str:
    return _digest(step.version, step.turns, step.replayed)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
