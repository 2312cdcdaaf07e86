"""A practice stage that is killed: its round is stored whole or not at all, and made once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.lifecycle import State
from afterwit.store import Filter
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Kind
from tests.fakes.models import tiny_qwen3
from tests.practice.killed import ANSWERS, practise_and_die
from tests.practice.test_stage import NOW, House, correct, due
from tests.processes import PROCESSES

AT = ("first request", "last request", "second answer", "commit")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("at", AT)
def test_a_round_is_whole_or_not_there_and_is_made_once(
    store: SqliteStore, model: Path, renderer: Renderer, tmp_path: Path, at: str
) -> None:
    correct(store, "moon")
    process = PROCESSES.Process(target=practise_and_die, args=(tmp_path / "store.db", model, at))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    there = ANSWERS if at == "commit" else 0
    assert store.practised_since(0.0, until=NOW + 1) == (there, there)
    assert House(store, renderer).step() is not bool(there)
    answers = list(store.turns(Filter(kind=Kind.PRACTICE)))
    assert [each.state for each in answers] == [State.JUDGED] * ANSWERS
    assert store.practised_since(0.0, until=NOW + 1) == (ANSWERS, ANSWERS)
    assert len(store.lessons()[0].answers) == ANSWERS
    assert due(store) == "1 lesson: waits for the next update"
