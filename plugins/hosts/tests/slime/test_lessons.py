"""A home's turns on their way through slime: claimed, carried, committed. No slime is needed for that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from afterwit.config import Settings
from afterwit.engines.model_files import fingerprint
from afterwit.engines.port import Ids, Scored, TeacherServer
from afterwit.errors import AlreadyRunning, EngineUnavailable, SettingError, UpdateRefused
from afterwit.learning.models import load_model
from afterwit.lifecycle import Reason, State
from afterwit.objective.settings import ObjectiveSettings
from afterwit.store.sqlite import SqliteStore
from afterwit_hosts.slime import training
from afterwit_hosts.slime.lessons import Lessons
from afterwit_hosts.slime.requirements import settings_of
from tests.fakes.judged_samples import a_sample, store_judged
from tests.fakes.models import reweighted
from tests.fakes.renderers import renderer_of
from tests.learning.stage.learning import Place, states
from tests.learning.test_served_teacher import FromLogits


@pytest.fixture
def place(base: Path, tmp_path: Path) -> Place:
    """A home of four judged turns, whose settings slime can train by."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(f'model = "{base}"\n[objective]\nsubset = "teacher"\n')
    renderer = renderer_of(base)
    store = SqliteStore.open(home / "store.db", fingerprint="tiny")
    store_judged(store, [a_sample(renderer, number) for number in range(4)])
    store.close()
    return Place(home=home, base=base)


@contextmanager
def lessons_in(place: Place, size: int, teacher: TeacherServer | None, **more: object) -> Iterator[Lessons]:
    with ExitStack() as opened:
        store = opened.enter_context(place.store())
        lessons = Lessons(
            size,
            home=place.home,
            settings=settings_of(place.home),
            versions=place.versions,
            store=store,
            opened=opened.pop_all(),
            teacher=teacher,
            student=None,
            **more,  # type: ignore[arg-type]
        )
        try:
            yield lessons
        finally:
            lessons.close()


@pytest.fixture
def teacher(base: Path) -> FromLogits:
    return FromLogits(base, ObjectiveSettings().ids_kept)


def test_a_batch_is_claimed_whole_and_knows_the_whole_batch(place: Place, teacher: FromLogits) -> None:
    with lessons_in(place, 3, teacher) as lessons:
        assert lessons.waiting() == 4
        found = lessons.next()
        assert [lesson.item.turn for lesson in found] == ["turn0000", "turn0001", "turn0002"]
        assert [len(lesson.scores) for lesson in found] == [2, 2, 2]
        batch = found[0].batch
        assert all(lesson.batch is batch for lesson in found)
        assert batch.turns == ("turn0000", "turn0001", "turn0002")
        assert (batch.over["rl"], batch.over["opd"]) == (3, 3)
        assert lessons.waiting() == 1
        assert [record.turn.id for record in lessons.newest(2)] == ["turn0003", "turn0002"]


def test_what_slime_wrote_is_a_version_and_its_turns_have_trained(
    place: Place, teacher: FromLogits, base: Path, tmp_path: Path
) -> None:
    written = reweighted(tmp_path / "weight_v000001", base, seed=4)
    with lessons_in(place, 2, teacher) as lessons:
        first = lessons.next()
        training.postprocess(None, 0, {"tokens": [torch.zeros(3), torch.zeros(4)], "prompt": first})
        training.commit(None, str(written), [])
        training.commit(None, str(written), [])  # as before the first step: there is nothing to name
        second = lessons.next()
        assert second[0].item.staleness == 1
    assert place.versions.numbers() == [0, 1]
    place.versions.verify(1)
    version = place.versions.get(1)
    assert version is not None
    assert (version.parent, version.turns) == (0, ("turn0000", "turn0001"))
    assert list(states(place).values()) == [State.TRAINED, State.TRAINED, State.JUDGED, State.JUDGED]
    expected, found = (
        load_model(folder, dtype=torch.float32, device=torch.device("cpu")).state_dict()
        for folder in (written, place.versions.weights(1))
    )
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())


def test_weights_that_are_not_finite_become_no_version(
    place: Place, teacher: FromLogits, base: Path, tmp_path: Path
) -> None:
    model = load_model(base, dtype=torch.float32, device=torch.device("cpu"))
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(torch.nan)
    model.save_pretrained(tmp_path / "weight_v000001")
    with lessons_in(place, 2, teacher) as lessons:
        (lesson, _) = lessons.next()
        with pytest.raises(UpdateRefused, match="not finite"):
            training.write(lesson.batch, tmp_path / "weight_v000001")
    assert place.versions.numbers() == [0]


def test_a_turn_that_cannot_train_ends_and_the_others_make_the_batch(
    place: Place, teacher: FromLogits, base: Path
) -> None:
    renderer = renderer_of(base)
    with place.store() as store:
        store_judged(store, [a_sample(renderer, 9, forced=(True,) * 6), a_sample(renderer, 10)])
    rested: list[float] = []
    with lessons_in(place, 5, teacher, rest=rested.append) as lessons:
        found = lessons.next()
    assert len(found) == 5
    assert len(rested) == 1
    assert states(place)["turn0009"] is Reason.ALL_FORCED


@dataclass
class Away:
    """A teacher that does not answer at first."""

    teacher: TeacherServer
    context_length: int = 512
    asked: list[int] = field(default_factory=list)

    def open(self) -> None: ...

    def score(
        self, rows: Sequence[tuple[Ids, Ids]], at: Sequence[Sequence[Ids]] | None = None
    ) -> list[Scored]:
        self.asked.append(len(rows))
        if len(self.asked) == 1:
            raise EngineUnavailable("http://teacher does not answer")
        return self.teacher.score(rows, at)


def test_turns_wait_while_the_teacher_is_away(place: Place, teacher: FromLogits) -> None:
    away, rested = Away(teacher), list[float]()
    with lessons_in(place, 2, away, rest=rested.append) as lessons:
        assert len(lessons.next()) == 2
    assert away.asked == [4, 4]
    assert len(rested) == 1


def test_tokens_without_a_lesson_name_the_flag_that_is_missing() -> None:
    with pytest.raises(
        ValueError, match=r"--rollout-data-postprocess-path afterwit_hosts\.slime\.training\.postprocess"
    ):
        training.lesson_of(torch.zeros(3))


def test_a_home_has_one_learner(base: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'model = "{base}"\n[objective]\nobjective = "rl"\n')
    SqliteStore.open(tmp_path / "store.db", fingerprint=fingerprint(base)).close()
    lessons = Lessons.of_home(tmp_path, 2)
    with pytest.raises(AlreadyRunning):
        Lessons.of_home(tmp_path, 2)
    lessons.close()
    Lessons.of_home(tmp_path, 2).close()


def test_the_students_ids_need_the_policys_server(base: Path, tmp_path: Path) -> None:
    text = f'model = "{base}"\n[learner]\nteacher_url = "http://127.0.0.1:1"\n'
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(SettingError, match=r"objective\.subset is 'student'"):
        Lessons.of_home(tmp_path, 2)


def test_settings_are_those_of_a_home_that_slime_trains(place: Place) -> None:
    settings: Settings = settings_of(place.home)
    assert (settings.learner.lora_rank, settings.learner.teacher, settings.objective.beta) == (
        0,
        "server",
        0.0,
    )
    assert replace(settings.objective, beta=0.0) == settings.objective
