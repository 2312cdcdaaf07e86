"""Models and settings that are refused before anything starts, with the refusals' messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.fitness import check_attention, context_of, refusal
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.errors import SettingError
from afterwit.learning.models import load_model
from tests.engines.test_forward import load_toy
from tests.fakes.models import tiny_qwen3


def open_engine(folder: Path) -> object:
    return EmbeddedEngine.load(folder, EmbeddedSettings())


def load_learner(folder: Path) -> object:
    return load_model(folder, dtype=torch.float32, device=torch.device("cpu"))


def configured(kind: str, **fields: object) -> dict[str, object]:
    return AutoConfig.for_model(kind, **fields).get_text_config().to_dict()


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("mistral", {"sliding_window": 64}, "looks back 64 tokens only"),
        ("gemma3_text", {"sliding_window": 128}, "context_length to at most 128"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}, "64 tokens"),
        ("gpt_oss", {}, "looks back 128 tokens only"),
        ("qwen3_next", {}, "linear_attention"),
        ("mamba", {}, "recurrent state"),
        ("t5", {}, "encoder-decoder"),
        ("falcon", {"alibi": True}, "ALiBi"),
    ],
)
def test_attention_that_is_not_standard_is_named_with_what_to_do(kind: str, fields: dict, words: str) -> None:
    reason = refusal(configured(kind, **fields), 512)
    assert reason
    assert words in reason
    assert "Serve" in reason or "serve" in reason


@pytest.mark.parametrize("kind", ["gpt_oss", "qwen3_5_text"])
def test_a_remote_engine_is_named_for_a_model_that_is_refused(kind: str) -> None:
    reason = refusal(configured(kind), 512) or ""
    assert 'engine.kind = "vllm"' in reason


def test_a_window_that_the_context_never_leaves_is_served() -> None:
    mistral = configured("mistral", sliding_window=4096)
    assert refusal(mistral, 4096) is None
    assert refusal(mistral, 4097) is not None
    assert refusal(configured("mistral", sliding_window=None), 4097) is None


def test_a_window_that_is_configured_but_not_used_does_not_count() -> None:
    assert refusal(configured("qwen2", use_sliding_window=False, sliding_window=64), 512) is None


def test_the_context_is_the_models_own_up_to_a_limit_and_never_longer() -> None:
    llama = configured("llama", max_position_embeddings=131072)
    assert context_of(llama, 0) == 32768
    assert context_of(llama, 65536) == 65536
    assert context_of(configured("llama", max_position_embeddings=2048), 0) == 2048
    assert "made for 2048" in (refusal(configured("llama", max_position_embeddings=2048), 4096) or "")


def test_an_attention_that_the_names_do_not_give_away_fails_the_check() -> None:
    with pytest.raises(SettingError, match="Serve a model with standard attention"):
        check_attention(load_toy("falcon_h1", mamba_chunk_size=16), 128)


def test_a_folder_without_a_model_is_a_setting_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"has no config\.json"):
        EmbeddedEngine.load(tmp_path, EmbeddedSettings())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonsense"}))
    with pytest.raises(SettingError, match="transformers cannot read"):
        EmbeddedEngine.load(tmp_path, EmbeddedSettings())


@pytest.mark.parametrize("open_folder", [open_engine, load_learner])
def test_a_model_that_needs_its_own_code_is_refused_with_the_reason(tmp_path: Path, open_folder) -> None:
    """The defect: transformers asked on the terminal whether to run it."""
    tiny_qwen3(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    code = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "own", "auto_map": code}))
    (tmp_path / "own.py").write_text("raise SystemExit('foreign code ran')")
    with pytest.raises(SettingError, match="needs Python code of its own"):
        open_folder(tmp_path)


def test_a_folder_without_weights_or_tokenizer_is_a_setting_error(tmp_path: Path) -> None:
    tiny_qwen3(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(SettingError, match="has no weights"):
        EmbeddedEngine.load(tmp_path, EmbeddedSettings())
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(SettingError, match=r"has no tokenizer\.json"):
        EmbeddedEngine.load(tmp_path, EmbeddedSettings())


def test_weights_cut_short_are_a_setting_error(tmp_path: Path) -> None:
    tiny_qwen3(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(SettingError, match=r"are cut short \(.*\): download it again"):
        EmbeddedEngine.load(tmp_path, EmbeddedSettings())


def test_a_device_that_is_not_there_is_a_setting_error(qwen: Path) -> None:
    for device in ("cuda:7", "abacus"):
        with pytest.raises(SettingError, match=f"engine.device is '{device}'"):
            EmbeddedEngine.load(qwen, EmbeddedSettings(device=device))


@pytest.mark.parametrize(
    "name", ["slots", "prefill_chunk", "prefill_beside", "threads", "context_length", "prefix_cache_gib"]
)
def test_a_setting_out_of_range_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1"):
        EmbeddedSettings(**{name: -1})
