"""`afterwit atropos`: the library reads the flags; one of ours is in each line of the log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("atroposlib", reason="needs the extra atropos")

from afterwit.cli.app import main
from afterwit_atropos.environment import env as command


@pytest.fixture(autouse=True)
def argv() -> Iterator[None]:
    kept, handlers = sys.argv, [(each, each.formatter) for each in logging.getLogger().handlers]
    yield
    sys.argv = kept
    for handler, formatter in handlers:
        handler.setFormatter(formatter)


@pytest.mark.parametrize("name", ["serve", "process", "evaluate"])
def test_help_is_the_librarys_with_the_published_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["atropos", name, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for flag in ("--env.distill_topk", "--env.prm_votes", "--openai.base_url", "--config"):
        assert flag in said


def test_a_wrong_setting_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["atropos", "evaluate", "--openai.model_name", f"{tmp_path}/none"])
    assert ended.value.code == 2
    assert "there is no model at" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--env.distill_topk", "0", "distill_topk: Input should be greater than or equal to 1"),
        ("--env.group_size", "nine", "env.group_size: Input should be a valid integer"),
        ("--env.correctness_weight", "2", "correctness_weight: Input should be less than or equal to 1"),
        ("--env.terminal_timeout", "0", "terminal_timeout: Input should be greater than 0"),
        ("--env.terminal_timeout", "inf", "terminal_timeout: Input should be a finite number"),
    ],
)
def test_a_number_that_does_not_fit_is_one_line(
    flag: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["atropos", "evaluate", flag, value])
    assert ended.value.code == 2
    assert f"afterwit: {said}" in capsys.readouterr().err


def test_going_round_the_sandbox_is_named_in_every_line_of_the_log() -> None:
    asked: list[str] = []
    command.run("serve", ["--unsafe-sandbox", "--env.seed", "3"], lambda: asked.extend(sys.argv))
    assert asked == ["afterwit atropos", "serve", "--env.seed", "3", "--env.unsafe_sandbox", "true"]
    record = logging.LogRecord("any", logging.INFO, "", 0, "a group is lost", (), None)
    for handler in logging.getLogger().handlers:
        assert "--unsafe-sandbox a group is lost" in handler.format(record)
