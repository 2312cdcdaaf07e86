"""`afterwit forget`: alone, or next to a running learner."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from afterwit.build import store_at, store_of_home, store_of_model, versions_of
from afterwit.cli.app import app
from afterwit.config import load
from afterwit.errors import TurnNotFound
from afterwit.home.home import remember_model
from afterwit.printing.terminal import SOON_S
from afterwit.running.train import learn
from afterwit.store.sqlite import SqliteStore
from tests.fakes.judged_samples import a_sample, store_judged
from tests.fakes.renderers import renderer_of

run = CliRunner()


def copied(home: Path, folder: Path) -> Path:
    return shutil.copytree(home, folder, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def _lived(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("lived")
    said = "[gateway]\nmax_tokens = 8\n[learner]\nthreads = 1\nmismatch_alarm = 100.0\n"
    (home / "config.toml").write_text(said)
    settings = load(home=home, below={"model": str(model)}, environment={})
    store = store_of_model(settings, home, model)
    remember_model(home, model)
    first, second = (a_sample(renderer_of(model), number) for number in (0, 1))
    store_judged(store, [replace(first, turn=replace(first.turn, session="talk")), second])
    store.close()
    learn(settings, home, stop=lambda: False, forever=False, wait=False)
    return home


@pytest.fixture
def lived(_lived: Path, tmp_path: Path) -> Path:
    """A home in which the session `talk` taught version 1 together with another one."""
    return copied(_lived, tmp_path)


def forget(home: Path, *arguments: str) -> str:
    found = run.invoke(app, ["forget", *arguments, "--home", str(home)])
    return f"{found.stdout}{found.exception or ''}"


def test_a_session_is_forgotten_where_no_learner_runs(lived: Path, model: Path) -> None:
    listed = run.invoke(app, ["ledger", "1", "--answers", "--json", "--home", str(lived)]).stdout
    assert {"before", "after"} == json.loads(listed.splitlines()[0])["answers"].keys()
    words = "session talk is forgotten: version 2 is version 0 and 1 update run again without it"
    assert words in forget(lived, "talk")
    versions = versions_of(lived, model)
    assert [number for number in versions.numbers() if versions.has_weights(number)] == [0, 2]
    with store_of_home(lived) as store, pytest.raises(TurnNotFound):
        store.turn("turn0000")
    merged = run.invoke(app, ["merge", str(lived / "merged"), "--home", str(lived)]).stdout
    assert "has the weights of version 2" in merged  # though no gateway has served it
    assert "nothing of session talk is stored any more" in forget(lived, "talk")
    assert "there is no session nobody" in forget(lived, "nobody")


def test_answers_are_refused_before_the_work_if_the_weights_of_either_version_are_gone(
    lived: Path, model: Path
) -> None:
    for weights in versions_of(lived, model).place(1).glob("*.safetensors"):
        weights.unlink()
    found = run.invoke(app, ["ledger", "1", "--answers", "--home", str(lived)])
    assert "the weights of version 1 are not in" in str(found.exception)
    assert "answering" not in found.stderr


def test_a_turn_names_its_session(lived: Path) -> None:
    assert "session talk is forgotten" in forget(lived, "turn0000")
    assert "is forgotten" in forget(lived, "last")


def test_turns_that_wait_outside_of_the_store_come_first(lived: Path) -> None:
    waiting = lived / "unrecorded-turns.jsonl"
    waiting.write_text("{}\n")
    assert f"{waiting} holds turns that were served while the store was away" in forget(lived, "talk")
    with store_of_home(lived) as store:
        assert store.forget_orders() == []
    waiting.write_text("")  # as a full disk leaves it
    assert "session talk is forgotten" in forget(lived, "talk")


def test_a_learner_that_runs_is_waited_for(lived: Path, model: Path) -> None:
    said: list[Result] = []
    command = ["forget", "talk", "--home", str(lived)]
    with versions_of(lived, model).learning():
        waiting = threading.Thread(target=lambda: said.append(run.invoke(app, command)))
        waiting.start()
        store = SqliteStore.open(lived / "store.db", fingerprint=None)
        while not store.forget_orders():
            time.sleep(0.01)
        time.sleep(SOON_S + 1.0)  # by then it says what it waits for
        store.forget("talk", now=1.0)
        store.close()
        waiting.join()
    assert "session talk is forgotten by the running learner" in said[0].stdout
    assert "the running learner, which goes on if you stop this command" in " ".join(said[0].stderr.split())


@pytest.mark.timeout(120)
def test_a_learner_that_ends_without_it_is_not_waited_for(lived: Path, model: Path) -> None:
    said: list[str] = []
    waiting = threading.Thread(target=lambda: said.append(forget(lived, "talk")), daemon=True)
    with versions_of(lived, model).learning(), closing(store_at(f"sqlite:{lived}/store.db")) as store:
        waiting.start()
        while not store.forget_orders():
            time.sleep(0.01)
        time.sleep(1.0)
    waiting.join(60.0)
    assert "session talk is forgotten: version 2" in said[0]


def test_what_cannot_be_run_again_is_said_with_the_way_out(lived: Path, model: Path) -> None:
    manifest = versions_of(lived, model).place(1) / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"recipe": None}))
    words = forget(lived, "talk")
    assert "its manifest does not hold its settings" in words
    assert "nothing was changed. `afterwit forget talk --no-replay`" in words
    with store_of_home(lived) as store:
        assert store.forget_orders() == []
    assert "version 2 has the weights of version 0" in forget(lived, "talk", "--no-replay")


@pytest.fixture(scope="module")
def _people(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("people")
    (home / "config.toml").write_text(
        '[learner]\nthreads = 1\nmismatch_alarm = 100.0\nbatch = 1\nmin_batch = 1\nadapters = "per_key"\n'
    )
    settings = load(home=home, below={"model": str(model)}, environment={})
    store = store_of_model(settings, home, model)
    remember_model(home, model)
    for number, key in enumerate(("ann", "bob", "ann")):
        sample = a_sample(renderer_of(model), number)
        turn = replace(sample.turn, adapter=f"key:{key}", scope=f"{key}/agent")
        store_judged(store, [replace(sample, turn=turn)], now=2000.0 + number)
    store.close()
    learn(settings, home, stop=lambda: False, forever=False, wait=False)
    return home


@pytest.fixture
def people(_people: Path, tmp_path: Path) -> Path:
    """A home in which Ann taught versions 1 and 3 in two sessions, and Bob version 2."""
    return copied(_people, tmp_path)


def test_an_adapter_is_forgotten_with_all_that_taught_it(people: Path, model: Path) -> None:
    listed = run.invoke(app, ["versions", "--json", "--adapter", "key:ann", "--home", str(people)]).stdout
    assert [json.loads(line)["number"] for line in listed.splitlines()] == [0, 1, 3]
    table = run.invoke(app, ["versions", "--home", str(people)]).stdout
    assert "adapter" in table
    assert "key:bob" in table
    said = forget(people, "--adapter", "key:ann")
    assert said.count("version 4 has the weights of version 0") == 2
    versions = versions_of(people, model)
    assert [number for number in versions.numbers() if versions.has_weights(number)] == [0, 2, 4]
    assert versions.weights(4) == model.resolve()
    with store_of_home(people) as store:
        assert [record.turn.id for record in store.turns()] == ["turn0001"]
    assert "nothing of an adapter key:ann is stored; with versions there are: key:ann, key:bob" in forget(
        people, "--adapter", "key:ann"
    )


def test_a_rollback_of_the_base_says_whose(people: Path, model: Path) -> None:
    command = ["rollback", "0", "--adapter", "key:ann", "--home", str(people)]
    assert "version 4 of key:ann has the weights of version 0; updates taken back: 1, 3" in (
        run.invoke(app, command).stdout
    )
    assert versions_of(people, model).of("key:bob").newest() == 2
    status = run.invoke(app, ["status", "--home", str(people)]).stdout
    assert "2 personal adapters have been trained" in status


def test_a_rollback_tells_of_turns_that_are_learned_next(lived: Path, model: Path) -> None:
    def rolled_back() -> list[str]:
        return run.invoke(app, ["rollback", "0", "--home", str(lived)]).stdout.splitlines()

    assert rolled_back() == ["version 2 has the weights of version 0; updates taken back: 1"]
    with store_of_home(lived) as store:
        store_judged(store, [a_sample(renderer_of(model), 2)])
    assert rolled_back()[1:] == ["1 judged turn waits to be learned; `afterwit pause` stops that"]
    run.invoke(app, ["pause", "--home", str(lived)])
    assert rolled_back()[1:] == []


def test_a_rollback_that_the_store_cannot_record_says_what_is_done_already(lived: Path, model: Path) -> None:
    with closing(sqlite3.connect(lived / "store.db")) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON versions BEGIN SELECT RAISE(FAIL, 'no room'); END"
        )
    found = run.invoke(app, ["rollback", "0", "--home", str(lived)])
    assert str(found.exception).startswith(
        "version 2 has the weights of version 0; `serve` records it, for the store could not: "
    )
    assert "no room" in str(found.exception)
    assert versions_of(lived, model).newest() == 2


def test_a_session_or_an_adapter_is_named_and_not_both(people: Path) -> None:
    for arguments in ((), ("talk", "--adapter", "key:ann")):
        assert "name a session, or an adapter with --adapter" in forget(people, *arguments)
