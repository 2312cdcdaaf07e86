"""An update that fails: its turns wait, or end with a reason, and the status shows why."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from typing import Any

import pytest
import torch

from afterwit.checkpoints.versions import roll_back
from afterwit.errors import EngineUnavailable, StoreError
from afterwit.learning.passes import Phase
from afterwit.lifecycle import Reason, State
from afterwit.objective.settings import ObjectiveSettings
from afterwit.store.sqlite import SqliteStore
from afterwit.verdict import JudgedTurn
from tests.fakes.judged_samples import store_judged
from tests.learning.stage.learning import (
    Place,
    fill,
    learn_and_die_of,
    learn_on_a_full_disk,
    states,
    status,
    trained,
)


def test_a_full_disk_leaves_no_half_version_says_so_and_passes(
    place: Place, samples: Callable[..., list[JudgedTurn]], processes: ForkServerContext
) -> None:
    fill(place, samples(0, 1, 2, 3))
    process = processes.Process(target=learn_on_a_full_disk, args=(place, 300_000))
    process.start()
    process.join()
    assert process.exitcode == 0
    said = (place.home / "status1").read_text()
    found = re.search(
        r"no room to write a version \(.*; it takes about ([\d.,]+) MB, [\d.,]+ MB are free\)", said
    )
    assert found is not None
    files = place.versions.place(1).iterdir()
    assert float(found[1].replace(",", "")) * 1e6 == pytest.approx(
        sum(each.stat().st_size for each in files), 0.2
    )
    assert (place.home / "status1").read_text().startswith("False")
    assert (place.home / "left1").read_text() == ""
    assert (place.home / "status2").read_text().startswith("True version 1; no judged turn waits")
    assert trained(place) == [("turn0000", "turn0001", "turn0002", "turn0003")]
    with place.store() as store:
        assert all(record.attempts == 0 for record in store.turns())


def test_a_learner_out_of_memory_goes_on_without_the_longest_turn(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, [*samples(0, 1, 2), *samples(3, tokens=50)])
    place = place.but(retry_s=10.0)
    left = [1]

    def watch(phase: Phase) -> None:
        if phase is Phase.SCORING and left and left.pop():
            raise torch.OutOfMemoryError("CUDA out of memory")

    with place.store() as store:
        learn = place.learn(store, watch)
        assert learn.step(follow=False)
        assert not status(store).ok
        assert "out of memory in an update of 4 turns; the longest, turn0003" in status(store).message
        assert store.turn("turn0003").attempts == 1
        assert learn.step(follow=False)
        assert status(store).ok
        assert trained(place) == [("turn0000", "turn0001", "turn0002")]
        place.clock.now += 10.0
        assert len(store.waiting(now=place.clock.now)) == 1
        store_judged(store, samples(4))
        assert learn.step(follow=False)
    assert trained(place)[1:] == [("turn0003", "turn0004")]


def test_a_gpu_that_fails_ends_the_learner_and_the_next_one_trains_its_turns(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1, 2, 3))

    def watch(phase: Phase) -> None:
        if phase is Phase.SCORING:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    with place.store() as store, pytest.raises(torch.AcceleratorError):
        place.learn(store, watch).run(lambda: False, follow=False)
    place.drain()
    assert trained(place) == [("turn0000", "turn0001", "turn0002", "turn0003")]


def test_turns_wait_for_a_teacher_that_is_away_however_long_and_none_is_to_blame(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1, 2, 3))
    place = place.but(retry_s=10.0, max_attempts=2)
    away = [True]

    def watch(phase: Phase) -> None:
        if phase is Phase.SCORING and away[0]:
            raise EngineUnavailable("the server at http://teacher cannot be reached")

    with place.store() as store:
        learn = place.learn(store, watch)
        for _ in range(5):
            assert learn.step(follow=False)
            assert status(store).message.startswith("the teacher is away: the server at http://teacher")
            assert not learn.step(follow=False)
            place.clock.now += 10.0
        assert [record.attempts for record in store.turns()] == [0] * 4
        away[0] = False
        assert learn.step(follow=False)
    assert trained(place) == [("turn0000", "turn0001", "turn0002", "turn0003")]


def test_a_turn_that_kills_the_learner_again_and_again_ends_as_failed_and_the_others_go_on(
    place: Place,
    samples: Callable[..., list[JudgedTurn]],
    processes: ForkServerContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(place, [*samples(0, 1, 2), *samples(3, tokens=50)])
    place = place.but(max_attempts=2)
    for _ in range(2):
        process = processes.Process(target=learn_and_die_of, args=(place, "turn0003"))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    place.drain()
    assert (
        "died again and again in an update of 4 turns (out of memory?); the longest, turn0003" in caplog.text
    )
    assert trained(place) == [("turn0000", "turn0001", "turn0002")]
    assert states(place)["turn0003"] is Reason.LEARNER_FAILED
    with place.store() as store:
        assert store.turn("turn0003").error == "the learner died in the turn's update"
        assert store.requeue(["turn0003"], now=place.clock.now) == 1


def test_a_turn_whose_updates_always_fail_ends_as_failed_and_can_be_requeued(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1))
    place = place.but(max_attempts=3)

    def watch(phase: Phase) -> None:
        if phase is Phase.STEPPED:
            raise RuntimeError("a broken kernel")

    with place.store() as store:
        learn = place.learn(store, watch)
        for _ in range(3):
            assert learn.step(follow=False)
            place.clock.now += 3600.0
        assert not learn.step(follow=False)
        assert "a broken kernel" in status(store).message
        assert store.turn("turn0001").error == "RuntimeError: a broken kernel"
    assert set(states(place).values()) == {Reason.LEARNER_FAILED}
    assert place.versions.newest() == 0


def test_a_step_that_is_not_finite_sets_the_batch_aside_and_leaves_the_weights(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    place = replace(place, objective=ObjectiveSettings(is_cap=math.inf))
    fill(place, [*samples(0), *samples(1, logprobs=(-1e30,) * 6)])
    with place.store() as store:
        learn = place.learn(store)
        assert learn.step(follow=False)
        assert not status(store).ok
        assert "set aside as not_finite: 2 turns" in status(store).message
        assert place.versions.newest() == 0
        store_judged(store, samples(2, 3))
        assert learn.step(follow=False)
        assert status(store) == replace(status(store), ok=True, message="wrote version 1 from 2 turns")
    assert states(place) == {
        "turn0000": Reason.NOT_FINITE,
        "turn0001": Reason.NOT_FINITE,
        "turn0002": State.TRAINED,
        "turn0003": State.TRAINED,
    }


def test_missing_weights_are_a_status_until_they_are_back(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    """The newest weights are gone: the status reports it until they are back."""
    for pair in (samples(0, 1), samples(2, 3)):
        fill(place, pair)
        place.drain()
    rests: list[str] = []

    def rest(seconds: float) -> None:
        if not rests:
            roll_back(place.versions, 1, now=6000.0)
            (place.versions.place(3) / "model.safetensors").unlink()
            store_judged(store, samples(4, 5))
            place.clock.now += 100.0
        rests.append(status(store).message)

    with place.store() as store:
        place.learn(store).run(lambda: len(rests) == 3, rest=rest)
    assert "the weights of version 3 are not in" in rests[1]


class Jammed(SqliteStore):
    """A store whose disk is full for the first release."""

    full = True

    def release(self, *args: Any, **more: Any) -> None:
        if self.full:
            self.full = False
            raise StoreError("no space left for the store")
        super().release(*args, **more)


def test_turns_that_could_not_be_given_back_are_freed_as_soon_as_the_store_works(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1))
    broken, said = [True], list[str]()

    def watch(phase: Phase) -> None:
        if phase is Phase.STEPPED and broken and broken.pop():
            raise OSError(28, "No space left on device")

    store = Jammed.open(place.home / "store.db", fingerprint="tiny")
    place.clock.now = 1e6
    place.learn(store, watch).run(
        lambda: len(said) == 2, rest=lambda seconds: said.append(status(store).message)
    )
    store.close()
    assert said[0] == "no space left for the store"
    assert said[1].startswith("version 1; no judged turn waits")
    assert trained(place) == [("turn0000", "turn0001")]
