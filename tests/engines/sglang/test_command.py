"""The server that `afterwit up` starts has all that the engine asks of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterwit.engines.kinds import server_command
from afterwit.engines.server.settings import SglangSettings
from afterwit.errors import SettingError
from tests.fakes.unpackable import tiny_unpackable


def started(model: Path, settings: SglangSettings) -> list[str]:
    command = server_command(model, settings, host="127.0.0.1", port=31000, lora_rank=8)
    return list(command.arguments)


def test_it_serves_the_folder_where_the_settings_say(qwen: Path) -> None:
    settings = SglangSettings(command=("/opt/sglang/bin/python", "-m", "sglang.launch_server"))
    words = " ".join(started(qwen, settings))
    assert words.startswith("/opt/sglang/bin/python -m sglang.launch_server --model-path ")
    assert f"--model-path {qwen} --host 127.0.0.1 --port 31000 --dtype float32" in words


def test_it_makes_room_for_an_adapter_of_every_projection(qwen: Path) -> None:
    words = " ".join(started(qwen, SglangSettings()))
    modules = "down_proj gate_proj k_proj o_proj q_proj up_proj v_proj"
    assert f"--enable-lora --max-lora-rank 8 --lora-target-modules {modules}" in words


def test_linear_attention_which_it_cannot_adapt_is_refused_before_a_server_starts(tmp_path: Path) -> None:
    tiny_unpackable(tmp_path, "qwen3_5 with images")
    with pytest.raises(SettingError, match=r"in_proj_qkv, in_proj_z, out_proj of .*engine.swap = \"whole\""):
        started(tmp_path, SglangSettings())
    assert "--enable-lora" not in started(tmp_path, SglangSettings(swap="whole"))


def test_whole_weights_need_no_room_for_adapters(qwen: Path) -> None:
    words = started(qwen, SglangSettings(swap="whole"))
    assert "--incremental-streaming-output" in words
    assert not [word for word in words if "lora" in word]


def test_flags_of_the_settings_come_last_so_that_they_win(qwen: Path) -> None:
    assert started(qwen, SglangSettings(flags=("--dtype", "bfloat16")))[-2:] == ["--dtype", "bfloat16"]
