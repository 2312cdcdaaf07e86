"""Killed while promotion decides, or takes back what it decided: done or not done, never half."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
import torch

from afterwit.learning.passes import Phase
from afterwit.lifecycle import Reason, State
from afterwit.promotion.episodes import Event, EventKind
from afterwit.promotion.suite import PromotionSettings
from afterwit.promotion.watch import WatchOver
from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Sampled
from afterwit.verdict import Verdict
from afterwit.version import Origin
from tests.learning.stage.learning import Place, fill, learn_and_die, states
from tests.learning.updates import read_only
from tests.promotion.test_gate import RUIN, approve
from tests.store.examples import NO, PANNED, PRAISED, THANKS, a_version, add

OF_VERSION_1 = Sampled(ids=(4,), logprobs=(-0.01,), versions=(1,), forced=(False,))


class Dying(SqliteStore):
    """A store whose process is killed as soon as a decision is written, before the transaction ends."""

    def decided(self, event: Event) -> None:
        super().decided(event)
        os.kill(os.getpid(), signal.SIGKILL)


def killed(processes: ForkServerContext, work: Callable[..., None], *arguments: object) -> None:
    child = processes.Process(target=work, args=arguments)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


def learn_and_die_deciding(place: Place) -> None:
    torch.set_num_threads(1)
    store = Dying.open(place.home / "store.db", fingerprint="tiny")
    place.learn(store).run(lambda: False, follow=False)


def judge_turn(store: Store, turn: str, verdict: Verdict) -> None:
    """Store a verdict as the judge stage does, in its transaction."""
    store.claim("judge", owner="judge", limit=1, lease_s=60, now=1.0)
    with store.transaction():
        store.judged(turn, verdict, rl=True, opd=False, reason=None, owner="judge", now=1.0)
        WatchOver(PromotionSettings()).judged(store, turn, now=1.0)


def judge_and_die_deciding(path: Path, turn: str, verdict: Verdict) -> None:
    judge_turn(Dying.open(path, fingerprint="tiny"), turn, verdict)


@pytest.mark.parametrize("phase", [Phase.WRITTEN, Phase.COMMITTED])
def test_killed_while_an_alarm_takes_versions_back_the_next_learner_has_the_same(
    place, samples, processes, phase
):
    place = place.but(lr=1e-6)
    fill(place, samples(*range(8)))
    place.drain()
    with place.store() as store:
        store.decided(Event(kind=EventKind.ALARM, at=1.0, version=2, evidence=101.0, words="too many"))
    killed(processes, learn_and_die, place, phase, 1)
    place.drain()
    made = place.versions.all()
    assert [(version.origin, version.restores) for version in made[3:]] == [(Origin.ROLLBACK, 0)]
    assert set(states(place).values()) == {Reason.REVERTED}


def test_killed_in_the_transaction_of_a_hold_its_turns_wait_and_are_held_later(place, samples, processes):
    place = place.but(lr=RUIN)
    with place.store() as store:
        approve(read_only(place.base, torch.float32), store)
    fill(place, samples(*range(4)))
    killed(processes, learn_and_die_deciding, place)
    assert set(states(place).values()) == {State.JUDGED}
    with place.store() as store:
        assert store.events() == []
    place.drain()
    assert set(states(place).values()) == {Reason.HELD_BACK}
    with place.store() as store:
        assert [event.kind for event in store.events()] == [EventKind.HOLD]


@pytest.mark.parametrize(
    ("verdict", "said", "least", "kind"),
    [(PANNED, NO, 4, EventKind.ALARM), (PRAISED, THANKS, 6, EventKind.CONFIRM)],
    ids=["alarm", "confirm"],
)
def test_killed_in_the_transaction_of_a_verdict_neither_it_nor_what_follows_from_it_is_there(
    tmp_path, processes, verdict, said, least, kind
):
    path = tmp_path / "store.db"
    store = SqliteStore.open(path, fingerprint="tiny")
    store.commit_version(a_version(0, parent=None), now=1.0)
    store.commit_version(a_version(1), now=1.0)
    for number in range(least):
        add(store, f"t{number}", sampled=OF_VERSION_1)
        store.answer(f"t{number}", said, answered_by=None, now=1.0)
        if number < least - 1:
            judge_turn(store, f"t{number}", verdict)
    assert store.events() == []
    store.close()
    killed(processes, judge_and_die_deciding, path, f"t{least - 1}", verdict)
    store = SqliteStore.open(path, fingerprint="tiny")
    assert (store.events(), len(store.episodes())) == ([], least - 1)
    assert store.turn(f"t{least - 1}").state is State.ANSWERED
    store.release([f"t{least - 1}"], owner="judge", now=1.0)
    judge_turn(store, f"t{least - 1}", verdict)
    assert [event.kind for event in store.events()] == [kind]
    store.close()
