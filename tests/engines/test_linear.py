"""A model with linear attention, which the embedded engine refuses, on a real vLLM server.

SGLang 0.5.23 does not support adapters for it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from transformers import Qwen3_5TextConfig

from afterwit.engines.kinds import open_engine
from afterwit.engines.server.settings import VllmSettings
from tests.engines.talk import ask, rescored, say
from tests.engines.vllm.servers import full, running
from tests.fakes.adapters import logprobs_by_peft, noise
from tests.fakes.models import save_random, with_tokenizer_of
from tests.servers.server import Servers

PROMPT, IDS, SAID = range(3, 60), tuple(range(10, 70)), 30
ERROR = 0.3
"""Of a log-prob: in bfloat16, which is all that vLLM's kernels for linear attention compute in on a CPU."""


@pytest.fixture(scope="module")
def qwen3_5(qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3.5 of two layers, one linear with heads of the smallest size that vLLM has there."""
    config = Qwen3_5TextConfig(
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
        layer_types=["linear_attention", "full_attention"],
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
    )
    folder = tmp_path_factory.mktemp("qwen3_5")
    save_random(folder, config, seed=0)
    return with_tokenizer_of(qwen, folder)


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.parametrize("server", ["vllm"])
async def test_responses_and_adapters_of_every_projection_are_the_models(
    servers: Servers, server: str, qwen3_5: Path, tmp_path: Path
) -> None:
    adapter = noise(tmp_path / "versions" / "000001", qwen3_5, seed=1)
    launch = full(qwen3_5)
    launch = dataclasses.replace(launch, flags=(*launch.flags, "--dtype", "bfloat16"))
    engine = await open_engine(qwen3_5, VllmSettings(url=running(servers, launch).url))
    request = ask(PROMPT, max_tokens=SAID, ignore_eos=True)
    try:
        base = await say(engine, request)
        await engine.stage(1, adapter)
        probed = await engine.probe(IDS)
        await engine.promote()
        said = await say(engine, request)
    finally:
        await engine.close()
    assert base.logprobs == pytest.approx(rescored(qwen3_5, request, base, 1.0).tolist(), abs=ERROR)
    assert probed == pytest.approx(logprobs_by_peft(qwen3_5, adapter, IDS), abs=ERROR)
    scored = torch.tensor(logprobs_by_peft(qwen3_5, adapter, [*PROMPT, *said.ids])[-SAID:])
    assert said.versions == (1,) * SAID
    assert said.logprobs == pytest.approx(scored.tolist(), abs=ERROR)
    moved = scored - rescored(qwen3_5, request, said, 1.0)
    assert moved.abs().max() > 5 * ERROR, "an adapter that moves less would prove nothing"
