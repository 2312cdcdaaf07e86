"""A crash between any two calls: no acknowledged turn is lost, and no turn trains twice."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from afterwit.lifecycle import State
from afterwit.turn import Turn
from afterwit.verdict import Feedback
from afterwit.version import Origin, Version
from tests.store.databases import DATABASES, KINDS, Database
from tests.store.examples import HINTED, NO, a_version, add

LEASE = 10.0


class World:
    """A gateway, a judge and a learner over one database. A crash takes all that they hold in memory alone.

    The answers to clients and the folder of manifests outlive a crash.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.told = dict[str, Turn]()
        self.praised = set[str]()
        self.manifests = [a_version(0, parent=None, origin=Origin.BASE)]
        self.now = 0.0
        self.start()

    def start(self) -> None:
        self.store = self.database.open()
        self.judging: list[str] = []
        self.learning: list[str] = []
        self.renamed: Version | None = None
        self.store.reconcile(self.manifests, now=self.now)

    def crash(self) -> None:
        self.database.crash()
        self.store.close()
        self.now += LEASE
        self.start()
        self.check()
        assert all(record.owner != "learner" for record in self.store.turns())

    def serve(self) -> None:
        name = f"t{len(self.told)}"
        self.told[name] = add(self.store, name, now=self.now)

    def answer(self) -> None:
        for record in list(self.store.turns())[-2:]:
            self.store.answer(record.turn.id, NO, answered_by=None, now=self.now)

    def praise(self) -> None:
        for name in list(self.told)[-1:]:
            self.store.feedback(name, Feedback(reward=1), now=self.now)
            self.praised.add(name)

    def judge(self) -> None:
        """Claims, or commits the next verdict."""
        if not self.judging:
            claimed = self.store.claim("judge", owner="judge", limit=2, lease_s=LEASE, now=self.now)
            self.judging = [record.turn.id for record in claimed]
            return
        self.store.judged(
            self.judging.pop(), HINTED, rl=True, opd=True, reason=None, owner="judge", now=self.now
        )

    def learn(self) -> None:
        """The next of its steps: claim, rename the manifest, commit it."""
        if self.renamed is not None:
            self.store.commit_version(self.renamed, now=self.now)
            self.learning, self.renamed = [], None
        elif self.learning:
            held = self.store.extend(self.learning, owner="learner", lease_s=LEASE, now=self.now)
            self.renamed = a_version(len(self.manifests), held)
            self.manifests.append(self.renamed)
        else:
            claimed = self.store.claim("learn", owner="learner", limit=2, lease_s=LEASE, now=self.now)
            self.learning = [record.turn.id for record in claimed]

    def check(self) -> None:
        for name, turn in self.told.items():
            record = self.store.turn(name)
            assert record.turn == turn
            assert name not in self.praised or (record.next_state and record.next_state.feedback)
        trained = [turn for manifest in self.manifests for turn in manifest.turns]
        assert len(trained) == len(set(trained))
        assert {r.turn.id for r in self.store.turns() if r.state is State.TRAINED} == set(trained)

    def finish(self) -> None:
        """Without further crashes every answered turn is trained."""
        for _ in range(4 * len(self.told) + 8):
            self.judge()
            self.learn()
        answered = {record.turn.id for record in self.store.turns() if record.next_state is not None}
        assert {turn for manifest in self.manifests for turn in manifest.turns} >= answered
        self.check()


STEPS: list[Callable[[World], None]] = [
    World.serve,
    World.answer,
    World.praise,
    World.judge,
    World.learn,
    World.learn,
    World.crash,
]
ROUND = [World.serve, World.answer, World.judge, World.judge, World.learn, World.learn, World.learn]


def live(kind: str, steps: list[Callable[[World], None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(DATABASES[kind](Path(folder) / "database"))
        for step in steps:
            step(world)
        world.crash()
        world.finish()
        world.store.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", range(len(ROUND) + 1))
def test_a_crash_after_any_step_of_a_round_loses_and_repeats_nothing(kind: str, place: int) -> None:
    live(kind, [*ROUND[:place], World.crash, *ROUND])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example([*ROUND, World.crash, *ROUND, World.praise])
@given(st.lists(st.sampled_from(STEPS), min_size=10, max_size=50))
def test_crashes_between_any_steps_lose_and_repeat_nothing(
    kind: str, steps: list[Callable[[World], None]]
) -> None:
    live(kind, steps)
