"""The command: what it refuses, and a whole trial of a tiny model that stops and goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from afterwit import demo
from afterwit.errors import SettingError
from afterwit.trial.command import STATE, Asked, _begun, run
from afterwit.trial.play import Played

MODEL = Path(demo.__file__).parent / "chat" / "model"


def asked(**given: object) -> Asked:
    fields = {
        "minutes": 5.0,
        "conversations": 2,
        "preference": None,
        "judge": "rules",
        "problems": None,
        "seed": 0,
    }
    return Asked(**(fields | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"judge": "me"}, "model, rules"),
        ({"minutes": 0.0}, "above 0"),
        ({"minutes": float("nan")}, "above 0"),
        ({"conversations": 0}, "above 0"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        asked(**given)


def test_an_unknown_preference_is_refused_with_those_that_this_model_can_be_asked(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="short, sentence, greeting"):
        run(asked(preference="loud"), out=tmp_path / "out", direct={"model": str(MODEL)})
    with pytest.raises(SettingError, match="student"):  # without --problems
        run(asked(preference="student"), out=tmp_path / "out", direct={"model": str(MODEL)})
    assert not (tmp_path / "out").exists()


def test_a_trial_of_something_else_is_not_continued(tmp_path: Path) -> None:
    Played(identity={"model": "smol", "seed": 0}).write(tmp_path / STATE)
    assert _begun(tmp_path, identity={"model": "smol", "seed": 0}).talks == []
    with pytest.raises(SettingError, match="whose seed is 0, not 1"):
        _begun(tmp_path, identity={"model": "smol", "seed": 1})


def test_a_broken_file_of_an_earlier_run_is_named(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text('{"identity": {}', encoding="utf-8")
    with pytest.raises(SettingError, match=STATE):
        _begun(tmp_path, identity={})


def test_the_home_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "store.db").touch()
    with pytest.raises(SettingError, match="something else"):
        _begun(tmp_path, identity={})


@pytest.mark.slow
def test_a_trial_goes_on_after_the_conversations_of_the_run_before(tmp_path: Path) -> None:
    held = []
    for conversations in (4, 8):
        run(
            asked(preference="greeting", conversations=conversations),
            out=tmp_path / "out",
            direct={"model": str(MODEL)},
        )
        facts = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
        held.append([talk["question"] for talk in facts["talks"]])
        assert facts["points"][-1]["conversations"] == conversations
        assert facts["learning"]["versions"] >= 1
    assert held[1][:4] == held[0]
    assert len(set(held[1])) == 8
    assert [point["conversations"] for point in facts["points"]] == [0, 4, 8]
