"""Settings that verl cannot train by are refused before it is imported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.errors import SettingError
from afterwit.learning.settings import LearnerSettings
from afterwit_hosts.verl.__main__ import in_verl, main, options_of

FULL = LearnerSettings(lora_rank=0, batch=4)


def test_every_process_holds_a_part_and_reads_whole_logits() -> None:
    settings = in_verl(FULL, 4)
    assert (settings.processes, settings.shards, settings.loss_backend, settings.packing) == (
        4,
        4,
        "plain",
        "off",
    )


@pytest.mark.parametrize(
    ("changes", "processes", "words"),
    [
        ({"lora_rank": 8}, 1, "lora_rank is 8, but verl's engine trains full weights here"),
        ({"dtype": "float64"}, 1, "float64"),
        ({"teacher": "ema"}, 1, "learner.teacher = 'base'"),
        ({}, 5, "processes is 5, but a batch is 4"),
    ],
)
def test_what_verl_cannot_train_by_is_refused(changes: dict[str, object], processes: int, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        in_verl(replace(FULL, **changes), processes)


def test_options_are_a_json_object() -> None:
    assert options_of("--engine", '{"param_offload": true}') == {"param_offload": True}
    with pytest.raises(SettingError, match="--engine is \\[\\], but must be a JSON object"):
        options_of("--engine", "[]")
    with pytest.raises(SettingError, match="--verl-model is x, which is not JSON"):
        options_of("--verl-model", "x")


def test_the_command_says_in_a_line_what_it_refuses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tiny", "--home", str(tmp_path), "--set", "learner.lora_rank=4"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("afterwit: learner.lora_rank is 4, but verl")
