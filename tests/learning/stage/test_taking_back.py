"""Updates, rollbacks back and forth, forgetting and crashes in any order: the store's state of a turn agrees
with the served weights. The weights here are the list of the turns that they were trained on."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.checkpoints.manifest import MODEL
from afterwit.checkpoints.versions import Versions, roll_back
from afterwit.errors import SettingError
from afterwit.learning.claims import Claims
from afterwit.learning.forgetting import Forgetter, Rerun
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Trainer
from afterwit.lifecycle import Reason, State
from afterwit.promotion.gate import Gate
from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from afterwit.version import Origin, Probe, Version
from tests.store.examples import add_judged

PROBE = Probe(ids=(1, 2), logprobs=(-1.0,))
Moment = Callable[[], None]


class Crash(Exception):
    """The learner's process died."""


class NoGate:
    """A gate that holds nothing back."""

    def keep(self) -> frozenset[int]:
        return frozenset()

    def items(self, *arguments: object, **more: object) -> list[object]:
        return []

    def result(self, kept: object) -> None:
        return None


@dataclass(kw_only=True)
class Learner:
    """Trains weights that are a list of turns. It calls `meanwhile` at each moment at which another process
    may act: after a plan, between two updates that are run again, and before the version is written."""

    versions: Versions
    adapter: str = "shared"
    meanwhile: Moment = lambda: None

    def turn_to(self, adapter: str) -> None:
        self.meanwhile()

    def rerun(self, start: int, steps: Sequence[Rerun], again: object, *, progress: object) -> list[str]:
        found = self.turns_in(start)
        for step in steps:
            self.meanwhile()
            found += step.turns
        return found

    def probe(self, policy: list[str]) -> Probe:
        self.meanwhile()
        return PROBE

    def packs(self, policy: list[str]) -> bool:
        return False

    def read(self, policy: list[str], items: object) -> list[object]:
        return []

    def turns_in(self, number: int) -> list[str]:
        folder = self.versions.weights(number)
        return (
            [] if folder == self.versions.base else cast(list[str], json.loads((folder / MODEL).read_text()))
        )

    def write(self, version: Version, policy: list[str], progress: object) -> Version:
        def fill(folder: Path) -> None:
            (folder / MODEL).write_text(json.dumps(policy))

        with self.versions.writing():
            return self.versions.write(version, fill if version.number else lambda folder: None)


@dataclass(kw_only=True)
class House:
    store: Store
    learner: Learner
    claims: Claims
    added: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def opened(cls, home: Path) -> Iterator[House]:
        store = SqliteStore.open(home / "store.db", fingerprint="f")
        versions = Versions(root=home / "versions", base=home).of("shared")
        settings = LearnerSettings(keep_versions=50)
        claims = Claims(store, versions, settings, owner="me", now=lambda: 1.0, reads_groups=False)
        house = cls(store=store, learner=Learner(versions=versions), claims=claims)
        base = Version(number=0, parent=None, origin=Origin.BASE, created=0.0, probe=PROBE)
        house.learner.write(base, [], None)
        try:
            yield house
        finally:
            store.close()

    @property
    def versions(self) -> Versions:
        return self.learner.versions

    def update(self, *, crash: bool = False, sessions: str = "ab") -> None:
        self.claims.catch_up()
        for session in sessions:
            self.added.append(f"{session}{len(self.added)}")
            add_judged(self.store, self.added[-1], session=session)
        turns = tuple(turn.turn for turn in self.store.waiting(now=9.0))
        newest = self.versions.newest()
        version = Version(
            number=newest + 1, parent=newest, origin=Origin.UPDATE, created=1.0, turns=turns, probe=PROBE
        )
        written = self.learner.write(version, [*self.learner.turns_in(newest), *turns], None)
        if not crash:
            self.claims.commit(written)

    def roll_back(self, target: int, *, crash: bool = False) -> None:
        with suppress(SettingError):  # the newest, or its weights are gone
            made = roll_back(self.versions, target, now=1.0)
            if not crash:
                self.store.commit_version(made, now=1.0)

    def requeue(self) -> None:
        self.store.requeue(self.added, now=1.0)

    def order(self, session: str, *, replay: bool) -> None:
        self.store.order_forgetting(session, replay=replay, now=1.0)

    def forget(self, meanwhile: Moment = lambda: None) -> None:
        gate_of = cast(Callable[[str], Gate], lambda adapter: NoGate())
        self.learner.meanwhile = meanwhile
        trainer = cast(Trainer, self.learner)
        said: list[str] = []
        forgetter = Forgetter(self.store, trainer, self.claims, gate_of, now=lambda: 1.0, say=said.append)
        made = forgetter.carry_out(self.store.forget_orders(), lambda phase: None)
        assert all("not forgotten" not in words for words in made)

    def check(self) -> None:
        """Check that the turns that the store calls trained are those in the weights, each once."""
        self.claims.distrust()
        self.claims.catch_up()
        held = self.learner.turns_in(self.versions.newest())
        assert len(held) == len(set(held)), held
        rows = self.store._db.rows("SELECT id, session, state, reason FROM turns")  # type: ignore[attr-defined]
        trained = {row["id"] for row in rows if row["state"] == State.TRAINED}
        assert trained == set(held)
        assert not {row["id"] for row in rows if row["reason"] == Reason.FORGOTTEN} & set(held)
        assert all(self.versions.has_weights(number) for number in [self.versions.newest()])


ACTS = st.one_of(
    st.tuples(st.just("update"), st.booleans()),
    st.tuples(st.just("roll_back"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("requeue")),
    st.tuples(st.just("forget"), st.sampled_from("ab"), st.booleans(), st.integers(0, 6), st.integers(-1, 9)),
)


@given(st.lists(ACTS, min_size=3, max_size=12))
def test_the_store_says_of_each_turn_what_the_weights_hold(acts: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder, House.opened(Path(folder)) as house:
        for name, *values in [("update", False), ("update", False), *acts]:
            if name == "update":
                house.update(crash=values[0])
            elif name == "roll_back":
                house.roll_back(values[0], crash=values[1])
            elif name == "requeue":
                house.requeue()
            else:
                forgotten(house, *values)
            house.check()


def forgotten(house: House, session: str, replay: bool, moment: int, target: int) -> None:
    """Forget a session; at a moment a person goes to version `target`, or the learner dies (-1)."""
    left = [moment]

    def meanwhile() -> None:
        left[0] -= 1
        if left[0] == 0 and target < 0:
            raise Crash
        if left[0] == 0:
            house.roll_back(target)

    house.order(session, replay=replay)
    house.claims.catch_up()
    with suppress(Crash):
        house.forget(meanwhile)
    house.check()
    house.forget()
    house.check()
    assert not house.store.forget_orders()


@pytest.mark.parametrize(
    ("moment", "target", "replay"),
    [
        pytest.param(
            moment,
            target,
            replay,
            marks=() if (moment + target) % 4 == replay else pytest.mark.slow,
        )
        for moment in range(1, 8)
        for target in range(4)
        for replay in (True, False)
    ],
)
def test_a_rollback_while_a_session_is_forgotten_is_not_undone(
    tmp_path: Path, moment: int, target: int, replay: bool
) -> None:
    """Version 4 is the newest, version 2 is without the session; a person goes back at each moment."""
    with House.opened(tmp_path) as house:
        for sessions in ("b", "b", "ab", "ab"):
            house.update(sessions=sessions)
        before, passed = [house.learner.turns_in(number) for number in range(5)], [0]

        def meanwhile() -> None:
            passed[0] += 1
            if passed[0] == moment:
                house.roll_back(target)

        house.order("a", replay=replay)
        house.forget(meanwhile)
        house.check()
        kept = before[target if passed[0] >= moment else 4]
        held = house.learner.turns_in(house.versions.newest())
        assert set(held) <= {turn for turn in kept if turn.startswith("b")}
        if replay:
            assert held == [turn for turn in kept if turn.startswith("b")]
        house.requeue()
        house.update()
        house.check()
