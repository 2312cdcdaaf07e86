"""A day in words: what is asked of each part, what it costs, and what breaks first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterwit.cli.app import app
from afterwit.config import load
from afterwit.planning.day.learning import Learning
from afterwit.planning.day.limits import limits
from afterwit.planning.day.report import SPEED, day_report, learning_of
from afterwit.planning.day.traffic import Day
from afterwit.planning.report import models_of
from docs.cards import CONFIGS

HALF = ("learner.dtype=bfloat16", "learner.checkpointing=true")
APART = ("judge.url=http://127.0.0.1:8010/v1", "judge.model=j", "placement.learner=1")


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of Qwen3-4B, without weights."""
    folder = tmp_path_factory.mktemp("qwen")
    (folder / "config.json").write_text(json.dumps(CONFIGS["Qwen3-4B"] | {"dtype": "bfloat16"}))
    return folder


def said(folder: Path, turns: int, *pairs: str, card_hour: float | None = None) -> str:
    settings = load(home=folder, pairs=[*HALF, *pairs], direct={"model": str(folder)}, environment={})
    return day_report(settings, models_of(settings, folder), Day(turns=turns), card_hour=card_hour)


def learning(folder: Path, *pairs: str) -> Learning:
    settings = load(home=folder, pairs=pairs, direct={"model": str(folder)}, environment={})
    return learning_of(settings, models_of(settings, folder), Day(turns=1))


def test_a_small_day_is_one_cards(qwen: Path) -> None:
    text = said(qwen, 1_000, card_hour=2.5)
    assert "1 to serve, judge and learn, for the fullest hour: 24 card hours a day, 60.00 a day" in text


def test_parts_that_have_cards_of_their_own_are_counted_apart(qwen: Path) -> None:
    text = said(qwen, 1_000, *APART)
    assert "1 to serve, 1 to judge, 1 to learn, for the fullest hour: 72 card hours a day\n" in text


def test_a_batch_too_small_for_the_day_is_said(qwen: Path) -> None:
    assert "in updates of at most 16 turns: raise learner.batch" in said(qwen, 5_000_000)
    assert "raise learner.batch" not in said(qwen, 5_000_000, "learner.batch=1024")


def test_without_a_learner_none_is_counted(qwen: Path) -> None:
    text = said(qwen, 1_000_000, "learner.enabled=false")
    assert "learner  " not in text
    assert "to learn" not in text


def test_the_settings_decide_where_hints_stand_and_who_reads_the_turns_again(qwen: Path) -> None:
    assert learning(qwen, "judge.placement=end", "objective.beta=0").at_end
    assert not learning(qwen, "objective.beta=0").reads_own
    assert learning(qwen).reads_own
    assert not learning(qwen).at_end


def test_the_nearest_limit_is_said_first_and_a_larger_setting_moves_it(qwen: Path) -> None:
    def of_calls(*pairs: str) -> int:
        settings = load(home=qwen, pairs=pairs, direct={"model": str(qwen)}, environment={})
        models, day = models_of(settings, qwen), Day(turns=1_000)
        shape = models.served.shape
        found = limits(day, settings, shape, shape, learning_of(settings, models, day), SPEED)
        assert found == sorted(found)
        return next(limit.turns for limit in found if "calls" in limit.what)

    more = of_calls("judge.max_concurrency=32", "judge.max_turns=8")
    assert more == pytest.approx(2 * of_calls(), abs=1)
    assert of_calls("judge.max_concurrency=32", "judge.max_turns=1") == of_calls(
        "judge.max_concurrency=6", "judge.max_turns=9"
    )


def test_the_command_adds_the_day_to_the_plan(qwen: Path, tmp_path: Path) -> None:
    words = [
        "plan",
        str(qwen),
        "--home",
        str(tmp_path),
        "--card",
        "80GB",
        *("--set", HALF[0]),
        *("--set", HALF[1]),
    ]
    plain = CliRunner().invoke(app, words)
    with_day = CliRunner().invoke(app, [*words, "--turns-per-day", "1000"])
    assert with_day.exit_code == 0
    assert with_day.stdout.startswith(plain.stdout)
    assert "a day of 1,000 turns, on paper" in with_day.stdout
