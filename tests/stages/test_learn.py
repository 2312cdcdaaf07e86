from __future__ import annotations

import math
import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from afterwit.checkpoints import roll_back
from afterwit.core.errors import SettingError, StoreError
from afterwit.core.lifecycle import Reason, State
from afterwit.core.sample import Sample
from afterwit.core.verdict import Feedback
from afterwit.learner.update.phase import Phase
from afterwit.objective.settings import ObjectiveSettings
from afterwit.stages.learn import STAGE
from afterwit.store import Status, Store
from afterwit.store.sqlite import SqliteStore
from afterwit.wire.model_text.render import Renderer
from tests.fakes.lessons import lesson, teach
from tests.fakes.models import tiny_qwen3
from tests.stages.learning import Place, learn_and_die, learn_and_die_of, learn_on_a_full_disk


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def renderer(base: Path) -> Renderer:
    return Renderer.load(base)


@pytest.fixture
def place(base: Path, tmp_path: Path) -> Place:
    return Place(home=tmp_path, base=base)


@pytest.fixture
def lessons(renderer: Renderer) -> Callable[..., list[Sample]]:
    return lambda *numbers, **more: [lesson(renderer, number, **more) for number in numbers]


def fill(place: Place, samples: list[Sample]) -> None:
    with place.store() as store:
        teach(store, samples)


def states(place: Place) -> dict[str, State | Reason]:
    with place.store() as store:
        return {record.turn.id: record.reason or record.state for record in store.turns()}


def status(store: Store) -> Status:
    return next(status for status in store.statuses() if status.stage == STAGE)


def trained(place: Place) -> list[tuple[str, ...]]:
    return [version.turns for version in place.versions.all() if version.number > 0]


def test_judged_turns_become_versions_in_the_order_they_came(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    fill(place, lessons(*range(10)))
    place.drain()
    assert trained(place) == [
        tuple(f"turn{number:04d}" for number in numbers) for numbers in ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9))
    ]
    assert set(states(place).values()) == {State.TRAINED}
    with place.store() as store:
        assert [version.trained for version in store.versions()] == [0, 4, 4, 2]


def test_a_surplus_waits_for_the_next_batch_and_for_its_time(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    fill(place, lessons(*range(7)))
    with place.store() as store:
        place.clock.now = 2000.0 + 99
        learn = place.learn(store)
        with place.versions.learning():
            assert [learn.step(), learn.step()] == [True, False]
            place.clock.now += 1
            assert [learn.step(), learn.step()] == [True, False]
    assert [len(turns) for turns in trained(place)] == [4, 3]


def test_fewer_than_the_least_never_start_an_update(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    fill(place, lessons(0))
    place.clock.now = 1e9
    with place.store() as store:
        assert not place.learn(store).step()
    assert states(place) == {"turn0000": State.JUDGED}


@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.SCORING, Phase.STEPPED, Phase.WRITING])
@pytest.mark.parametrize("stops", [True, False])
def test_told_to_stop_a_learner_finishes_what_it_writes_and_gives_back_the_rest(
    place: Place, lessons: Callable[..., list[Sample]], phase: Phase, stops: bool
) -> None:
    fill(place, lessons(0, 1, 2, 3))
    told = False

    def watch(reached: Phase) -> None:
        nonlocal told
        told = told or (stops and reached is phase)

    with place.store() as store:
        place.learn(store, watch).run(lambda: told, follow=False)
        written = phase is Phase.WRITING or not stops
        assert place.versions.newest() == int(written)
        assert len(store.waiting(now=place.clock.now)) == (0 if written else 4)
        assert {record.attempts for record in store.turns()} == {0}


# A kill at any moment.


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that start with torch already imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.stages.learning"])
    return context


KILLS = [
    (Phase.CLAIMED, 1),
    (Phase.SCORING, 1),
    (Phase.STEPPED, 1),
    (Phase.STEPPED, 2),
    (Phase.WRITING, 1),
    (Phase.WRITTEN, 1),
    (Phase.COMMITTED, 1),
    (Phase.CLAIMED, 2),
    (Phase.WRITING, 2),
    (Phase.WRITTEN, 2),
]


@pytest.fixture(scope="module", params=[{}, {"lora_rank": 16, "teacher": "ema"}], ids=["whole", "lora"])
def way(request: pytest.FixtureRequest) -> dict[str, object]:
    """What trains: all weights, or an adapter, with a teacher that follows."""
    return request.param


@pytest.fixture(scope="module")
def undisturbed(
    way: dict[str, object], base: Path, renderer: Renderer, tmp_path_factory: pytest.TempPathFactory
) -> Place:
    """The same lessons, learned without a crash."""
    place = busy(Place(home=tmp_path_factory.mktemp("undisturbed"), base=base), way)
    fill(place, [lesson(renderer, number) for number in range(12)])
    place.drain()
    return place


def busy(place: Place, way: dict[str, object]) -> Place:
    """With everything that reads the past: epochs, replay, a running baseline, few versions kept."""
    objective = ObjectiveSettings(baseline="running", beta=0.1)
    return replace(place.but(epochs=2, replay=2, keep_versions=2, **way), objective=objective)


def tensors(place: Place) -> dict[str, bytes]:
    """Weights and the learner's state of the last version."""
    return {path.name: path.read_bytes() for path in place.versions.place(3).glob("*.safetensors")}


@pytest.mark.parametrize(("phase", "time"), KILLS)
def test_a_kill_loses_nothing_and_trains_nothing_twice(
    place: Place,
    lessons: Callable[..., list[Sample]],
    undisturbed: Place,
    way: dict[str, object],
    processes: ForkServerContext,
    phase: Phase,
    time: int,
) -> None:
    place = busy(place, way)
    fill(place, lessons(*range(12)))
    process = processes.Process(target=learn_and_die, args=(place, phase, time))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    place.drain()
    times = Counter(turn for turns in trained(place) for turn in turns)
    assert times == {f"turn{number:04d}": 1 for number in range(12)}
    assert states(place) == states(undisturbed)
    assert trained(place) == trained(undisturbed)
    assert tensors(place) == tensors(undisturbed)
    assert [number for number in (1, 2, 3) if place.versions.has_weights(number)] == [2, 3]
    assert len(list(place.versions.root.glob("[0-9]*"))) == 4


@pytest.mark.slow
def test_a_learner_killed_again_and_again_learns_what_an_undisturbed_one_does(
    place: Place,
    lessons: Callable[..., list[Sample]],
    undisturbed: Place,
    way: dict[str, object],
    processes: ForkServerContext,
) -> None:
    """At moments nobody chose: between bytes, inside SQLite, while loading."""
    place = busy(place, way).but(max_attempts=1000)
    fill(place, lessons(*range(12)))
    random, kills = Random(7), 0
    while kills < 40:
        process = processes.Process(target=place.drain)
        process.start()
        process.join(random.uniform(0.0, 0.4))
        kills += process.exitcode is None
        process.kill()
        process.join()
    place.drain()
    assert trained(place) == trained(undisturbed)
    assert states(place) == states(undisturbed)
    assert tensors(place) == tensors(undisturbed)


def test_a_full_disk_leaves_no_half_version_says_so_and_passes(
    place: Place, lessons: Callable[..., list[Sample]], processes: ForkServerContext
) -> None:
    fill(place, lessons(0, 1, 2, 3))
    process = processes.Process(target=learn_on_a_full_disk, args=(place, 300_000))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert "no room to write a version" in (place.home / "status1").read_text()
    assert (place.home / "status1").read_text().startswith("False")
    assert (place.home / "left1").read_text() == ""
    assert (place.home / "status2").read_text() == "True wrote version 1 from 4 turns"
    assert trained(place) == [("turn0000", "turn0001", "turn0002", "turn0003")]
    with place.store() as store:
        assert all(record.attempts == 0 for record in store.turns())


def test_a_learner_out_of_memory_goes_on_without_the_longest_turn(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    fill(place, [*lessons(0, 1, 2), *lessons(3, tokens=50)])
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
        teach(store, lessons(4))
        assert learn.step(follow=False)
    assert trained(place)[1:] == [("turn0003", "turn0004")]


def test_a_turn_that_kills_the_learner_again_and_again_ends_as_failed_and_the_others_go_on(
    place: Place,
    lessons: Callable[..., list[Sample]],
    processes: ForkServerContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(place, [*lessons(0, 1, 2), *lessons(3, tokens=50)])
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
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    fill(place, lessons(0, 1))
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
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    place = replace(place, objective=ObjectiveSettings(is_cap=math.inf))
    fill(place, [*lessons(0), *lessons(1, logprobs=(-1e30,) * 6)])
    with place.store() as store:
        learn = place.learn(store)
        assert learn.step(follow=False)
        assert not status(store).ok
        assert "2 turns are set aside as not_finite" in status(store).message
        assert place.versions.newest() == 0
        teach(store, lessons(2, 3))
        assert learn.step(follow=False)
        assert status(store) == replace(status(store), ok=True, message="wrote version 1 from 2 turns")
    assert states(place) == {
        "turn0000": Reason.NOT_FINITE,
        "turn0001": Reason.NOT_FINITE,
        "turn0002": State.TRAINED,
        "turn0003": State.TRAINED,
    }


def test_turns_sampled_too_long_ago_are_skipped_and_the_others_train(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    place = place.but(max_staleness=1, batch=2)
    fill(place, lessons(*range(5)))
    fill(place, lessons(5, 6, 7, version=2))
    place.drain()
    found = states(place)
    assert [found[f"turn{number:04d}"] for number in range(8)] == [
        *[State.TRAINED] * 4,
        Reason.STALE,
        *[State.TRAINED] * 3,
    ]


def test_an_engine_that_disagrees_with_the_learner_is_an_alarm(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    fill(place, lessons(0, 1))
    with place.store() as store:
        place.but(mismatch_alarm=0.001).learn(store).step(follow=False)
        version = store.versions()[-1]
        assert version.metrics["mismatch_mean"] <= version.metrics["mismatch_max"]
        assert not status(store).ok
        assert f"{version.metrics['mismatch_fresh']:.3g} nats" in status(store).message
    assert set(states(place).values()) == {State.TRAINED}


def test_tokens_of_older_versions_raise_no_alarm_for_the_policy_has_moved(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    fill(place, lessons(0, 1))
    fill(place, lessons(2, 3))
    with place.store() as store:
        learn = place.but(mismatch_alarm=100.0, batch=2).learn(store)
        assert learn.step(follow=False)
        quick = place.but(mismatch_alarm=0.001, batch=2).learn(store)
        assert quick.step(follow=False)
        assert "mismatch_fresh" not in store.versions()[-1].metrics
        assert status(store).ok


# Replay and the gate.


def test_replayed_turns_are_named_as_such_and_only_those_fresh_enough_join(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    place = place.but(replay=3, max_staleness=1, batch=2)
    fill(place, lessons(0, 1))
    fill(place, lessons(2, 3, version=1, hints=()))
    fill(place, lessons(4, 5, version=2))
    place.drain()
    first, second, third = place.versions.all()[1:]
    assert first.replayed == ()
    assert set(second.replayed) == {"turn0000", "turn0001"}
    assert third.replayed == ()  # versions 0 are two behind, turns 2 and 3 have no hints
    assert second.turns == ("turn0002", "turn0003")
    assert second.metrics["samples"] == 4.0
    with place.store() as store:
        assert store.turn("turn0000").trained_in == (1,)
        assert store.turn("turn0000").replayed_in == (2,)


@pytest.mark.parametrize(("gate", "updates"), [(True, 1), (False, 2)])
def test_the_gate_lets_no_update_pass_that_would_only_replay(
    place: Place, lessons: Callable[..., list[Sample]], gate: bool, updates: int
) -> None:
    place = replace(place.but(replay=3, update_gate=gate, batch=2), objective=ObjectiveSettings(w_rl=0.0))
    fill(place, lessons(0, 1))
    fill(place, lessons(2, 3, hints=(), reward=1))
    place.drain()
    assert place.versions.newest() == updates
    assert [states(place)[turn] for turn in ("turn0002", "turn0003")] == [Reason.NO_SIGNAL] * 2
    assert trained(place) == [("turn0000", "turn0001"), ()][:updates]


def test_routed_turns_that_teach_nothing_neither_train_nor_open_the_gate(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    place = replace(
        place.but(replay=3, update_gate=True, batch=2), objective=ObjectiveSettings(routing="routed")
    )
    fill(place, lessons(0, 1))
    fill(place, lessons(2, 3, reward=1, logprobs=(-0.01,) * 6))
    place.drain()
    assert place.versions.newest() == 1
    assert [states(place)[turn] for turn in ("turn0002", "turn0003")] == [Reason.ALREADY_CONFIDENT] * 2
    assert trained(place) == [("turn0000", "turn0001")]


def test_a_batch_with_nothing_to_learn_makes_no_version(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    place = replace(place, objective=ObjectiveSettings(objective="rl"))
    fill(place, lessons(0, 1, reward=0))
    place.drain()
    assert place.versions.newest() == 0
    assert set(states(place).values()) == {Reason.NO_SIGNAL}


# Others at work beside the learner.


def test_a_rollback_is_noticed_and_its_turns_do_not_train_again(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    fill(place, lessons(*range(8)))
    with place.store() as store:
        learn = place.learn(store)
        assert learn.step(follow=False)
        assert learn.step(follow=False)
        roll_back(place.versions, 1, now=6000.0)
        teach(store, lessons(8, 9))
        assert learn.step(follow=False)
        assert [version.number for version in store.versions()] == [1, 2, 3, 4]
    found = states(place)
    assert {found[f"turn{number:04d}"] for number in range(4, 8)} == {Reason.REVERTED}
    fourth = place.versions.get(4)
    assert fourth is not None
    assert (fourth.parent, fourth.turns) == (3, ("turn0008", "turn0009"))


def test_a_rollback_during_an_update_wins_and_the_batch_trains_on_its_weights(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    fill(place, lessons(0, 1))
    place.drain()
    fill(place, lessons(2, 3))
    pending = [True]

    def watch(phase: Phase) -> None:
        if phase is Phase.STEPPED and pending and pending.pop():
            roll_back(place.versions, 0, now=6000.0)

    with place.store() as store:
        learn = place.learn(store, watch)
        assert learn.step(follow=False)
        assert place.versions.newest() == 2
        assert learn.step(follow=False)
    assert states(place) == {
        "turn0000": Reason.REVERTED,
        "turn0001": Reason.REVERTED,
        "turn0002": State.TRAINED,
        "turn0003": State.TRAINED,
    }
    assert trained(place) == [("turn0000", "turn0001"), (), ("turn0002", "turn0003")]


def test_feedback_that_comes_during_the_update_is_too_late_to_train(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    fill(place, lessons(0, 1))

    def watch(phase: Phase) -> None:
        if phase is Phase.STEPPED:
            with place.store() as other:
                outcome = other.feedback("turn0000", Feedback(reward=1), now=5001.0)
                assert not outcome.trains

    with place.store() as store:
        place.learn(store, watch).step(follow=False)
    assert set(states(place).values()) == {State.TRAINED}


def test_a_second_learner_is_refused_by_name(place: Place) -> None:
    with place.versions.learning(), place.store() as store:
        with pytest.raises(SettingError, match="only one learner may run: process"):
            place.learn(store).run(lambda: False, follow=False)


def test_a_lost_version_gives_its_turns_back(place: Place, lessons: Callable[..., list[Sample]]) -> None:
    fill(place, lessons(0, 1))
    place.drain()
    for path in place.versions.place(1).iterdir():
        path.unlink()
    place.drain()
    assert trained(place) == [("turn0000", "turn0001")]
    assert place.versions.has_weights(1)


def test_a_store_that_stands_in_the_way_is_a_status_and_not_the_end(
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    """The newest weights are gone: said, and over as soon as they are back."""
    for pair in (lessons(0, 1), lessons(2, 3)):
        fill(place, pair)
        place.drain()
    rests: list[str] = []

    def rest(seconds: float) -> None:
        if not rests:
            roll_back(place.versions, 1, now=6000.0)
            (place.versions.place(3) / "model.safetensors").unlink()
            teach(store, lessons(4, 5))
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
    place: Place, lessons: Callable[..., list[Sample]]
) -> None:
    fill(place, lessons(0, 1))
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
    assert said == ["no space left for the store", "wrote version 1 from 2 turns"]
    assert trained(place) == [("turn0000", "turn0001")]
