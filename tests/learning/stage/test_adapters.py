"""Several adapters, one learner: each learns what it would have learned alone, to the bit."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.learning.passes import Phase
from afterwit.lifecycle import Reason, State
from afterwit.objective.settings import ObjectiveSettings
from afterwit.verdict import JudgedTurn
from tests.fakes.judged_samples import a_sample
from tests.learning.stage.learning import Place, fill, forget_and_die, learn_and_die, states, tensor_files
from tests.products import some

ANN, BOB, EVE = "key:ann", "key:bob", "key:eve"
Samples = Callable[..., list[JudgedTurn]]
BATCH = 2


def own(place: Place) -> Place:
    """With everything that reads the past: epochs, replay, a running baseline, a teacher that follows."""
    place = place.but(lora_rank=4, batch=BATCH, epochs=2, replay=2, teacher="ema", keep_versions=3)
    return replace(place, objective=ObjectiveSettings(baseline="running", beta=0.1))


def of(adapter: str, samples: Sequence[JudgedTurn]) -> list[JudgedTurn]:
    return [
        replace(sample, turn=replace(sample.turn, adapter=adapter, scope=f"{adapter}/agent"))
        for sample in samples
    ]


def tensors(place: Place, adapter: str) -> dict[str, bytes]:
    """Weights and the learner's state of the adapter's newest version."""
    newest = place.versions.of(adapter).newest()
    return tensor_files(place.versions.place(newest))


def taught(place: Place, adapter: str) -> list[tuple[str, ...]]:
    return [version.turns for version in place.versions.of(adapter).all() if version.number]


@pytest.fixture(scope="module")
def alone(
    base: Path, renderer: object, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Sequence[JudgedTurn]], dict[str, bytes]]:
    """The files of an adapter that learned in a home of its own."""
    made: dict[str, dict[str, bytes]] = {}

    def learned(adapter: str, samples: Sequence[JudgedTurn]) -> dict[str, bytes]:
        if adapter not in made:
            place = own(Place(home=tmp_path_factory.mktemp("alone"), base=base))
            fill(place, of(adapter, samples))
            place.drain()
            made[adapter] = tensors(place, adapter)
        return made[adapter]

    return learned


@pytest.fixture(scope="module")
def lessons(renderer: Renderer) -> dict[str, list[JudgedTurn]]:
    return {
        ANN: [a_sample(renderer, number) for number in range(4)],
        BOB: [a_sample(renderer, number) for number in range(10, 14)],
        EVE: [a_sample(renderer, number, reward=1) for number in (20, 21)],
    }


@pytest.fixture(scope="module")
def _everybody(
    base: Path, lessons: dict[str, list[JudgedTurn]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    place = own(Place(home=tmp_path_factory.mktemp("everybody"), base=base))
    fill(place, mixed(lessons))
    place.drain()
    return place.home


@pytest.fixture
def everybody(place: Place, _everybody: Path) -> Place:
    """A home in which all lessons were learned, as they came in."""
    shutil.copytree(_everybody, place.home, dirs_exist_ok=True)
    return own(place)


def mixed(lessons: dict[str, list[JudgedTurn]]) -> list[JudgedTurn]:
    """As they come in: in turns."""
    each = {adapter: of(adapter, samples) for adapter, samples in lessons.items()}
    order = max(map(len, each.values()))
    return [samples[at] for at in range(order) for samples in each.values() if at < len(samples)]


def test_what_others_teach_changes_nobodys_weights_by_a_bit(
    everybody: Place, lessons: dict[str, list[JudgedTurn]], alone: Callable[..., dict[str, bytes]]
) -> None:
    place = everybody
    for adapter, samples in lessons.items():
        turns = [turn for batch in taught(place, adapter) for turn in batch]
        assert turns == [sample.turn.id for sample in samples]
        assert tensors(place, adapter) == alone(adapter, samples)
    assert set(states(place).values()) == {State.TRAINED}


@pytest.mark.parametrize("phase", some(3, [Phase.STEPPED, Phase.WRITING, Phase.WRITTEN]))
def test_a_kill_loses_nothing_of_anybodys(
    place: Place,
    lessons: dict[str, list[JudgedTurn]],
    alone: Callable[..., dict[str, bytes]],
    processes: ForkServerContext,
    phase: Phase,
) -> None:
    place = own(place)
    fill(place, mixed(lessons))
    process = processes.Process(target=learn_and_die, args=(place, phase, 3))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    place.drain()
    times = Counter(turn for adapter in lessons for batch in taught(place, adapter) for turn in batch)
    assert times == {sample.turn.id: 1 for samples in lessons.values() for sample in samples}
    assert all(tensors(place, adapter) == alone(adapter, lessons[adapter]) for adapter in lessons)


def test_the_adapter_whose_turn_has_waited_longest_learns_first(place: Place, samples: Samples) -> None:
    place = own(place)
    fill(place, [*of(BOB, samples(1)), *of(ANN, samples(2, 3)), *of(BOB, samples(4))])
    place.drain()
    assert [version.adapter for version in place.versions.all()[1:]] == [BOB, ANN]


def test_a_turn_is_too_old_by_the_versions_of_its_own_adapter(place: Place, samples: Samples) -> None:
    place = own(place).but(max_staleness=1)
    fill(place, of(ANN, samples(*range(6))))
    place.drain()
    fill(place, [*of(BOB, samples(10, 11)), *of(ANN, samples(12))])
    place.drain()
    assert states(place)["turn0010"] is State.TRAINED
    assert states(place)["turn0012"] is Reason.STALE


def test_a_pause_of_one_adapter_leaves_the_others_learning(place: Place, samples: Samples) -> None:
    place = own(place)
    fill(place, [*of(ANN, samples(0, 1)), *of(BOB, samples(2, 3))])
    with place.store() as store:
        store.pause("held back", now=1.0, adapter=ANN)
        assert (store.paused(), set(store.paused_adapters())) == (None, {ANN})
    place.drain()
    assert (taught(place, ANN), len(taught(place, BOB))) == ([], 1)
    with place.store() as store:
        assert store.resume() is not None
        assert store.paused_adapters() == {}
    place.drain()
    assert len(taught(place, ANN)) == 1


def test_forgetting_a_session_leaves_the_others_adapters_as_they_are(
    everybody: Place, lessons: dict[str, list[JudgedTurn]], alone: Callable[..., dict[str, bytes]]
) -> None:
    place = everybody
    session = lessons[ANN][0].turn.session
    with place.store() as store:
        store.order_forgetting(session, replay=True, now=1.0)
        stage = place.learn(store)
        stage.begin()
        (said,) = stage.forget()
    newest = place.versions.of(ANN).all()[-1]
    assert said.endswith("run again without it")
    assert (newest.forgets, newest.without) == ((session,), (lessons[ANN][0].turn.id,))
    assert tensors(place, BOB) == alone(BOB, lessons[BOB])


def test_a_session_that_two_adapters_learned_leaves_both_however_the_learner_dies(
    place: Place, samples: Samples, processes: ForkServerContext
) -> None:
    place = own(place).but(replay=0)
    for adapter, numbers in ((ANN, (0, 1)), (BOB, (2, 3))):
        told = of(adapter, samples(*numbers))
        gone = replace(told[0], turn=replace(told[0].turn, session="gone"))
        fill(place, [gone, *told[1:]])
    place.drain()
    process = processes.Process(target=forget_and_die, args=(place, "gone", Phase.WRITTEN))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    place.drain()
    chains = {adapter: place.versions.of(adapter).all()[-1] for adapter in (ANN, BOB)}
    assert all(set(version.without) == {"turn0000", "turn0002"} for version in chains.values())
    assert [version.forgets for version in sorted(chains.values(), key=lambda each: each.number)] == [
        (),
        ("gone",),
    ]
    weights = [each for each in place.versions.numbers() if place.versions.has_weights(each)]
    assert weights == [0, *sorted(version.number for version in chains.values())]
    assert states(place).keys() == {"turn0001", "turn0003"}


def test_what_trained_an_adapter_trains_the_shared_one_once_if_it_is_to(
    place: Place, lessons: dict[str, list[JudgedTurn]], alone: Callable[..., dict[str, bytes]]
) -> None:
    own_alone = own(place)
    place = replace(own_alone, settings=replace(own_alone.settings, teaches="both"))
    fill(place, mixed(lessons))
    place.drain()
    everybody = [sample.turn.id for samples in lessons.values() for sample in samples]
    shared = place.versions.of("shared").all()[1:]
    assert sorted(turn for version in shared for turn in version.replayed) == sorted(everybody)
    assert all(version.turns == () for version in shared)
    assert all(tensors(place, adapter) == alone(adapter, lessons[adapter]) for adapter in lessons)
    assert set(states(place).values()) == {State.TRAINED}
    before = place.versions.numbers()
    place.drain()
    assert place.versions.numbers() == before


def test_forgetting_reaches_the_shared_adapter_too(place: Place, samples: Samples) -> None:
    place = own(place).but(replay=0)
    place = replace(place, settings=replace(place.settings, teaches="both"))
    fill(place, of(ANN, samples(0, 1)))
    place.drain()
    with place.store() as store:
        store.order_forgetting("session0", replay=True, now=1.0)
        stage = place.learn(store)
        stage.begin()
        (said,) = stage.forget()
    assert said.count("run again without it") == 2
    for adapter in (ANN, "shared"):
        assert place.versions.of(adapter).all()[-1].without == ("turn0000",)
    assert states(place).keys() == {"turn0001"}


def test_what_the_shared_adapter_cannot_learn_is_passed_over(place: Place, samples: Samples) -> None:
    place = own(place).but(replay=0)
    place = replace(place, settings=replace(place.settings, teaches="both"))
    fill(place, of(ANN, samples(0, 1)))
    with place.store() as store:
        stage = place.learn(store)
        stage._trainer.begin(now=1.0)
        assert stage.step()
        build = stage._trainer.build
        stage._trainer.build = lambda *args, **more: ([], [])  # type: ignore[method-assign]
        assert stage.step(follow=False)
        stage._trainer.build = build  # type: ignore[method-assign]
        assert not stage.step(follow=False)
        assert place.versions.of("shared").newest() == 0
    place.drain()
    assert place.versions.of("shared").all()[-1].replayed == ("turn0000", "turn0001")
