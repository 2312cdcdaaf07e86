"""A forgotten session leaves the weights that a run without its turns would have made, to the bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.manifest import STATE
from afterwit.errors import DiskFull, StoreUnavailable, TurnNotFound
from afterwit.learning.forgetting import settings_of
from afterwit.learning.passes import Phase
from afterwit.lifecycle import Reason, State
from afterwit.objective.settings import ObjectiveSettings
from afterwit.practice.lessons import WINDOW, Fresh, Wording, step_of
from afterwit.promotion.episodes import Event, EventKind
from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Kind
from afterwit.verdict import JudgedTurn
from afterwit.version import Origin, tainted
from tests.disk import room_for
from tests.fakes.judged_samples import a_sample, store_judged
from tests.learning.stage.learning import Place, fill, tensor_files

WAYS = [{}, {"lora_rank": 4, "teacher": "ema", "epochs": 1}]
GONE = "gone"
Samples = Callable[..., list[JudgedTurn]]


def busy(place: Place, way: dict[str, object]) -> Place:
    """With everything that reads the past: epochs, replay, a running baseline."""
    objective = ObjectiveSettings(baseline="running", beta=0.1)
    settings = {"epochs": 2, "replay": 2, "batch": 2, "keep_versions": 20} | way
    return replace(place.but(**settings), objective=objective)


def of_session(samples: Sequence[JudgedTurn], session: str) -> list[JudgedTurn]:
    return [replace(sample, turn=replace(sample.turn, session=session)) for sample in samples]


def learned(place: Place, samples: Samples, *batches: Sequence[int]) -> None:
    """Batch by batch; turns 2 and 5 are of the session that will be forgotten."""
    with place.store() as store:
        stage = place.learn(store)
        for numbers in batches:
            for number in numbers:
                store_judged(store, of_session(samples(number), GONE if number in (2, 5) else f"s{number}"))
            stage.run(lambda: False, follow=False)


def four_batches(place: Place, samples: Samples) -> None:
    learned(place, samples, (0, 1), (2, 3), (4, 5), (6, 7))


@pytest.fixture(scope="module")
def lived(
    base: Path, renderer: Renderer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Place, dict[str, object], Callable[[Place, Samples], None]], Place]:
    """Has a place live so, once for all that ask: each gets a copy of its home."""
    made: dict[str, Path] = {}

    def copied(place: Place, way: dict[str, object], live: Callable[[Place, Samples], None]) -> Place:
        name = f"{live.__name__} {way}"
        if name not in made:
            made[name] = tmp_path_factory.mktemp("lived")
            live(
                busy(Place(home=made[name], base=base), way),
                lambda *numbers: [a_sample(renderer, number) for number in numbers],
            )
        shutil.copytree(made[name], place.home, dirs_exist_ok=True)
        return busy(place, way)

    return copied


def forget(place: Place, session: str = GONE, *, replay: bool = True) -> list[str]:
    with place.store() as store:
        store.order_forgetting(session, replay=replay, now=1.0)
        stage = place.learn(store)
        stage.begin()
        return stage.forget()


def tensors(place: Place, number: int | None = None) -> dict[str, bytes]:
    number = place.versions.newest() if number is None else number
    return tensor_files(place.versions.place(number))


def without(place: Place, other: Place, gone: set[str], *, versions: Sequence[int] | None = None) -> None:
    """Have `other` train the same batches as `place` did, from the same store, without these turns."""
    if not (other.home / "store.db").exists():
        shutil.copy(place.home / "store.db", other.home)
    with place.store() as store, other.store() as unused:
        trainer = other.trainer()
        trainer.begin(now=1.0)
        claims = other.learn(unused)._claims
        for version in place.versions.all()[1:]:
            if version.origin is not Origin.UPDATE or version.number not in (versions or [version.number]):
                continue
            new, again = (
                trainer.build(
                    claims.samples([store.turn(turn) for turn in turns if turn not in gone]),
                    version=version.parent,
                )[0]
                for turns in (version.turns, version.replayed)
            )
            if new:
                settings, _, _ = settings_of(version)  # steps of practice are more and smaller
                trainer.train(new, again, now=1.0, progress=lambda phase: None, settings=settings)


@dataclass
class Watched:
    """A store that notes which weights hold a forgotten session when it follows the folder of versions."""

    store: Store
    place: Place
    left: list[tuple[int, ...]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        if name in ("commit_version", "reconcile"):
            self.left.append(tainted(self.place.versions.all(), self.place.versions.has_weights))
        return getattr(self.store, name)


@pytest.mark.parametrize("stopped", [False, True])
def test_an_order_stands_until_the_weights_that_hold_the_session_are_gone(
    place: Place, lived: Callable[..., Place], stopped: bool
) -> None:
    place = lived(place, WAYS[1], four_batches)

    def watch(phase: Phase) -> None:
        if stopped and phase is Phase.WRITTEN:
            raise KeyboardInterrupt

    with place.store() as store:
        store.order_forgetting(GONE, replay=True, now=1.0)
        watched = Watched(store, place)
        with pytest.raises(KeyboardInterrupt) if stopped else nullcontext():
            stage = place.learn(cast("Store", watched), watch)
            stage.begin()
            stage.forget()
        place.learn(cast("Store", watched)).begin()
        assert not store.forget_orders()
    assert not any(watched.left)


@pytest.mark.parametrize("way", WAYS, ids=["whole", "lora"])
def test_the_weights_are_to_the_bit_those_of_a_run_without_the_session(
    place: Place, lived: Callable[..., Place], way: dict[str, object]
) -> None:
    place = lived(place, way, four_batches)
    other = replace(place, home=place.home / "other")
    other.home.mkdir()
    without(place, other, {"turn0002", "turn0005"})
    newest = place.versions.newest()
    said = forget(place)
    assert "is forgotten: version 5 is version 1 and 3 updates run again without it" in said[0]
    made = place.versions.get(newest + 1)
    assert made is not None
    assert (made.origin, made.begins, made.replays, made.forgets) == (Origin.REPLAY, 1, (2, 3, 4), (GONE,))
    assert made.without == ("turn0002", "turn0005")
    assert tensors(place) == tensors(other)
    assert [number for number in range(1, 6) if place.versions.has_weights(number)] == [1, 5]
    with place.store() as store:
        for turn in made.without:
            with pytest.raises(TurnNotFound):
                store.turn(turn)
        assert store.turn("turn0003").state is State.TRAINED
        assert store.counts().reasons == {Reason.FORGOTTEN: 2}
        assert store.forget_orders() == []


def aged(place: Place) -> None:
    """As an older Afterwit wrote it: another name of the state, and settings that are gone."""
    for path in place.versions.root.glob("*/manifest.json"):
        old = json.loads(path.read_text())
        if STATE in old["files"]:
            old["files"]["learner.safetensors"] = old["files"].pop(STATE)
            (path.parent / STATE).rename(path.parent / "learner.safetensors")
        if old["recipe"] is not None:
            for unknown in ("adam_eps", "stop_at_teacher"):
                del old["recipe"]["learner"][unknown]
            old["recipe"]["learner"] |= {"target_share": 0.0, "target_kl": 0.15, "checkpointing": False}
        path.write_text(json.dumps(old))


def test_a_home_of_an_older_afterwit_goes_on_from_its_states_and_can_forget(
    place: Place, samples: Samples, lived: Callable[..., Place]
) -> None:
    place = lived(place.but(adam_eps=0.0, stop_at_teacher=False), WAYS[1], four_batches)
    young = {number: tensors(place, number) for number in (1, 2, 3, 4)}
    aged(place)
    assert {number: tensors(place, number) for number in young} == young
    for number in young:
        place.versions.verify(number)
        version = place.versions.get(number)
        assert version is not None
        settings, _, _ = settings_of(version)
        assert (settings.adam_eps, settings.stop_at_teacher) == (0, False)
    learned(place, samples, (8, 9))
    made = place.versions.get(5)
    assert made is not None
    assert made.recipe is not None
    assert not made.recipe.fresh_optimizer
    assert "4 updates run again without it" in forget(place)[0]


def test_what_is_learned_behind_it_and_forgotten_again_leaves_the_first_session_out(
    place: Place, samples: Samples, lived: Callable[..., Place]
) -> None:
    place = lived(place, {}, four_batches)
    forget(place)
    learned(place, samples, (8, 9))
    other = replace(place, home=place.home / "other")
    other.home.mkdir()
    without(place, other, {"turn0002", "turn0005", "turn0004"})
    said = forget(place, "s4")
    assert "is forgotten" in said[0]
    made = place.versions.all()[-1]
    assert made.replays == (2, 4, 6)
    assert made.begins == 1
    assert tensors(place) == tensors(other)


def test_each_update_runs_again_under_the_settings_that_it_had(place: Place, samples: Samples) -> None:
    first = busy(place, {})
    later = first.but(lr=3e-3, beta2=0.9)
    learned(first, samples, (0, 1), (2, 3))
    learned(later, samples, (4, 6))
    other = replace(first, home=first.home / "other")
    other.home.mkdir()
    without(first, other, {"turn0002"}, versions=(1, 2))
    without(first, replace(later, home=other.home), {"turn0002"}, versions=(3,))
    assert "2 updates run again" in forget(later)[0]
    assert tensors(first) == tensors(other)


def test_an_update_after_a_hold_runs_again_with_its_learning_rate(place: Place, samples: Samples) -> None:
    place = busy(place, {})
    learned(place, samples, (0, 1))
    with place.store() as store:
        store.decided(Event(kind=EventKind.HOLD, at=1.0, version=9, evidence=21.0, words="lost"))
    learned(place, samples, (2, 3), (4, 6))
    found = [version.recipe for version in place.versions.all()[1:] if version.recipe is not None]
    assert [recipe.learner["lr"] for recipe in found] == pytest.approx([1e-3, 1e-3 / 3, 1e-3 / 3])
    other = replace(place.but(lr=1e-3 / 3), home=place.home / "other")
    other.home.mkdir()
    without(place, replace(other, settings=place.settings), {"turn0002"}, versions=(1,))
    without(place, other, {"turn0002"}, versions=(2, 3))
    assert "2 updates run again" in forget(place)[0]
    assert tensors(place) == tensors(other)


def test_a_session_that_taught_alone_leaves_the_base(place: Place, samples: Samples) -> None:
    fill(place, of_session(samples(0, 1), GONE))
    place.drain()
    assert "version 2 has the weights of version 0" in forget(place)[0]
    assert not place.versions.has_weights(1)


def test_a_session_that_taught_nothing_is_only_deleted(place: Place, samples: Samples) -> None:
    fill(place, samples(0, 1))
    place.drain()
    fill(place, of_session(samples(2), GONE))
    assert "no weights held it" in forget(place)[0]
    assert place.versions.newest() == 1
    with place.store() as store, pytest.raises(TurnNotFound):
        store.turn("turn0002")


def test_without_the_content_of_later_turns_it_says_so_and_changes_nothing(
    place: Place, samples: Samples
) -> None:
    place = place.but(batch=2)
    learned(place, samples, (2, 3), (4, 6))
    with place.store() as store:
        store._db.execute(  # type: ignore[attr-defined]
            "DELETE FROM contents WHERE seq = (SELECT seq FROM turns WHERE id = 'turn0006')"
        )
    before = tensors(place)
    assert "the content of turn turn0006 is gone" in forget(place)[0]
    assert place.versions.newest() == 2
    assert tensors(place) == before
    with place.store() as store:
        assert store.turn("turn0002").state is State.TRAINED
        assert store.forget_orders()[0].error is not None
    assert "version 3 has the weights of version 0" in forget(place, replay=False)[0]
    with place.store() as store:
        assert store.turn("turn0003").reason is Reason.REVERTED


def test_on_a_full_disk_the_order_stands_and_is_carried_out_later(place: Place, samples: Samples) -> None:
    learned(busy(place, {}), samples, (2, 3), (4, 5))
    before = tensors(place)
    with room_for(300_000), pytest.raises(DiskFull, match=r"versions cannot be written: .*File too large"):
        forget(place)
    assert (place.versions.newest(), tensors(place)) == (2, before)
    with place.store() as store:
        assert [order.error for order in store.forget_orders()] == [None]
    assert "version 3 is version 0 and 2 updates run again without it" in forget(place)[0]


def test_a_store_that_fails_once_the_weights_are_written_does_not_take_the_order_back(
    place: Place, samples: Samples
) -> None:
    class Full(SqliteStore):
        def commit_version(self, *args: Any, **more: Any) -> None:
            raise StoreUnavailable("no space left for the store")

    learned(busy(place, {}), samples, (2, 3))
    store = Full.open(place.home / "store.db", fingerprint="tiny")
    store.order_forgetting(GONE, replay=True, now=1.0)
    stage = place.learn(store)
    stage.begin()
    with pytest.raises(StoreUnavailable, match="no space left"):
        stage.forget()
    assert [order.error for order in store.forget_orders()] == [None]
    store.close()
    place.drain()
    with place.store() as store, pytest.raises(TurnNotFound):
        store.turn("turn0002")


PRACTISED = {"turn0008", "turn0009", "turn0010", "turn0011"}


def practised(place: Place, samples: Samples) -> None:
    """A lesson of session s0, practised in the second update on its own prompt and on one of GONE, and in the
    third one by a teacher that also read a lesson of GONE."""
    learned(place, samples, (0, 2))
    with place.store() as store:
        number = store.teach(store.turn("turn0000").sampled_turn, "Keep it short.", now=1.0)
        other = store.lesson(store.teach(store.turn("turn0002").sampled_turn, "Greet them.", now=1.0))
        prompts = ("turn0000", "turn0002", "turn0000", "turn0000")
        answers = [
            Fresh(replace(each.turn, kind=Kind.PRACTICE, session="s0", parent=None), prompt)
            for each, prompt in zip(samples(8, 9, 10, 11), prompts, strict=True)
        ]
        also = (Wording(other, other.corrections[0]),)
        answers[2:] = [each._replace(earlier=also) for each in answers[2:]]
        assert store.practised(store.lesson(number), "Keep it short.", answers, now=2.0)
        place.learn(store).run(lambda: False, follow=False)
    learned(place, samples, (3, 4))


def test_an_update_of_practice_alone_goes_as_far_as_its_lesson_has_left_to_teach(
    place: Place, samples: Samples
) -> None:
    place = place.but(measure_effects=True)
    learned(place, samples, (0, 2))
    rate, shares = place.settings.rate, []
    (first,) = (version.recipe for version in place.versions.all()[1:])
    assert first is not None
    assert first.learner["epochs"] == place.settings.epochs
    with place.store() as store:
        number = store.teach(store.turn("turn0000").sampled_turn, "Keep it short.", now=1.0)
        for at in range(WINDOW // 2 + 2):
            shares.append(step_of([store.lesson(number)]))
            answers = [
                Fresh(replace(each.turn, kind=Kind.PRACTICE, session="s0", parent=None), "turn0000")
                for each in samples(8 + 2 * at, 9 + 2 * at)
            ]
            assert store.practised(store.lesson(number), "Keep it short.", answers, now=2.0 + at)
            place.learn(store).run(lambda: False, follow=False)
            recipe = place.versions.all()[-1].recipe
            assert recipe is not None
            assert recipe.learner["lr"] == pytest.approx(0.5 * shares[-1] * rate)
            assert recipe.learner["epochs"] == place.settings.practice_epochs
    assert shares[:-1] == [1.0] * (WINDOW // 2 + 1)
    assert shares[-1] < 1


@pytest.mark.parametrize(
    ("session", "gone"),
    [
        (GONE, {"turn0002", "turn0009", "turn0010", "turn0011"}),
        pytest.param("s0", {"turn0000", *PRACTISED}, marks=pytest.mark.slow),
        pytest.param("lesson:1", PRACTISED, marks=pytest.mark.slow),
        ("lesson:2", {"turn0010", "turn0011"}),
    ],
    ids=["prompt", "correction", "lesson", "other lesson"],
)
def test_practice_is_forgotten_to_the_bit_with_its_prompt_or_what_its_teacher_read_or_alone(
    place: Place, lived: Callable[..., Place], session: str, gone: set[str]
) -> None:
    place = lived(place, WAYS[1], practised)
    assert {turn for version in place.versions.all()[2:4] for turn in version.turns} == PRACTISED
    other = replace(place, home=place.home / "other")
    other.home.mkdir()
    without(place, other, gone)
    assert "run again without it" in forget(place, session)[0]
    assert tensors(place) == tensors(other)
    with place.store() as store:
        for turn in gone:
            with pytest.raises(TurnNotFound):
                store.turn(turn)
