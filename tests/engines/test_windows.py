"""A model with sliding windows, which the embedded engine refuses, on real servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from transformers import Gemma3TextConfig

from afterwit.engines.port import Engine
from tests.engines.sglang.servers import opened as opened_sglang
from tests.engines.talk import ask, rescored, say
from tests.engines.vllm.servers import opened as opened_vllm
from tests.fakes.adapters import logprobs_by_peft, noise
from tests.fakes.models import save_random, with_tokenizer_of
from tests.servers.server import Servers

OPENED: Mapping[str, Callable[..., AbstractAsyncContextManager[Engine]]] = {
    "vllm": opened_vllm,
    "sglang": opened_sglang,
}
PROMPT, IDS = range(3, 60), tuple(range(10, 70))
WINDOW = 16


@pytest.fixture(scope="module")
def gemma(qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Gemma 3 of two layers, one with a window, and the tokenizer of `qwen`."""
    folder = tmp_path_factory.mktemp("gemma")
    config = Gemma3TextConfig(
        vocab_size=457,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        initializer_range=0.2,
        eos_token_id=2,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=32,
    )
    save_random(folder, config, seed=0)
    return with_tokenizer_of(qwen, folder)


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.parametrize("server", sorted(OPENED))
async def test_responses_and_adapters_beyond_the_window_are_the_models(
    servers: Servers, server: str, gemma: Path, tmp_path: Path
) -> None:
    adapter = noise(tmp_path / "versions" / "000001", gemma, seed=1)
    async with OPENED[server](servers, gemma, swap="adapters") as engine:
        request = ask(PROMPT, max_tokens=30, ignore_eos=True)
        said = await say(engine, request)
        assert said.logprobs == pytest.approx(rescored(gemma, request, said, 1.0).tolist(), abs=1e-4)
        await engine.stage(1, adapter)
        probed = await engine.probe(IDS)
    assert probed == pytest.approx(logprobs_by_peft(gemma, adapter, IDS), abs=1e-4)
