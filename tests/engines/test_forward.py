"""The three forwards against transformers' own, within 5e-6."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from afterwit.engines.embedded.cache.slots import SlotCache
from afterwit.engines.embedded.forward import decode, prefill, score
from afterwit.engines.embedded.load import check_attention, load_module
from tests.engines.talk import plain_logits

CPU = torch.device("cpu")
CLOSE = {"atol": 5e-6, "rtol": 0}


def small(values: torch.Tensor) -> torch.Tensor:
    """Logits at unit scale: the small models' are tens, real ones' are not."""
    return values / values.abs().max()


@torch.inference_mode()
def test_chunks_rows_and_ragged_steps_give_the_plain_logits(family: Path) -> None:
    module = load_module(family, CPU, torch.float32)
    texts = [[(7 * i + 11 * row) % 450 for i in range(40 + 90 * row)] for row in range(4)]
    cache = SlotCache(slots=4, context_length=512)
    for row, ids in enumerate(texts):
        for start in range(0, len(ids) - 2, 50):
            prefill(module, cache, row, ids[start : min(start + 50, len(ids) - 2)], start)
    first = decode(module, cache, 0, [ids[-2] for ids in texts], [len(ids) - 2 for ids in texts])
    second = decode(module, cache, 1, [ids[-1] for ids in texts[1:]], [len(ids) - 1 for ids in texts[1:]])
    for row, ids in enumerate(texts):
        plain = plain_logits(family, ids)
        torch.testing.assert_close(small(first[row]), small(plain[-2]), **CLOSE)
        if row:
            torch.testing.assert_close(small(second[row - 1]), small(plain[-1]), **CLOSE)


@torch.inference_mode()
def test_rows_that_join_and_move_keep_their_keys(qwen: Path) -> None:
    module = load_module(qwen, CPU, torch.float32)
    cache = SlotCache(slots=4, context_length=64)
    texts = [[5, 6, 7], [8, 9, 10, 11], [12, 13]]
    for row, ids in ((0, texts[1]), (2, texts[2])):
        alone = SlotCache(slots=4, context_length=64)
        prefill(module, alone, 0, ids, 0)
        cache.take(row, alone, len(ids))
    cache.move(2, 1, 2)
    logits = decode(module, cache, 0, [20, 21], [4, 2])
    torch.testing.assert_close(small(logits[0]), small(plain_logits(qwen, [*texts[1], 20])[-1]), **CLOSE)
    torch.testing.assert_close(small(logits[1]), small(plain_logits(qwen, [*texts[2], 21])[-1]), **CLOSE)


@given(ids=st.lists(st.integers(0, 449), min_size=2, max_size=70), chunk=st.integers(1, 80))
@settings(max_examples=15)
def test_a_score_is_that_of_a_plain_forward_in_any_chunks(qwen: Path, ids: list[int], chunk: int) -> None:
    module = load_module(qwen, CPU, torch.float32)
    plain = plain_logits(qwen, ids)[:-1].log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert score(module, ids, chunk=chunk) == pytest.approx(plain.tolist(), abs=1e-4)


def test_storage_grows_with_need_and_is_freed() -> None:
    cache = RecordingCache(slots=8, context_length=1000)
    module = load_toy()
    for row, length in ((0, 10), (0, 300), (3, 300), (7, 900)):
        prefill(module, cache, row, [1] * length, 0)
    kept = {(1, 256): 4, (1, 512): 4, (4, 512): 4, (8, 1000): 4}
    assert cache.allocated == kept
    cache.clear()
    prefill(module, cache, 0, [1], 0)
    assert cache.allocated == kept | {(1, 256): 8}


class RecordingCache(SlotCache):
    """Counts the tensors it was given, by rows and length."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.allocated: Counter[tuple[int, int]] = Counter()

    def allocate(self, like_BHQD: torch.Tensor, rows: int, length: int) -> torch.Tensor:
        made = super().allocate(like_BHQD, rows, length)
        self.allocated[made.shape[0], made.shape[2]] += 1
        return made


class ScarceCache(SlotCache):
    """On a device with room for 512 positions a row."""

    def allocate(self, like_BHQD: torch.Tensor, rows: int, length: int) -> torch.Tensor:
        if length > 512:
            raise RuntimeError("out of memory")
        return super().allocate(like_BHQD, rows, length)


@torch.inference_mode()
def test_memory_that_one_row_cannot_have_is_not_asked_for_by_the_others() -> None:
    module, cache = load_toy(), ScarceCache(slots=4, context_length=1000)
    prefill(module, cache, 0, [1, 2, 3], 0)
    with pytest.raises(RuntimeError, match="out of memory"):
        prefill(module, cache, 1, [1] * 600, 0)
    logits = decode(module, cache, 0, [4], [3])
    plain = module(input_ids=torch.tensor([[1, 2, 3, 4]]), use_cache=False).logits[0, -1]
    torch.testing.assert_close(small(logits[0]), small(plain), **CLOSE)


SHAPE = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}


def load_toy(kind: str = "llama", **more: object) -> torch.nn.Module:
    config = AutoConfig.for_model(kind, **SHAPE | more)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()


@pytest.mark.parametrize(
    "kind",
    ["llama", "qwen2", "qwen3", "smollm3", "phi3", "gemma", "olmo2", "granite", "gpt_neox", "stablelm"],
)
def test_models_with_standard_attention_pass_the_check_at_start(kind: str) -> None:
    check_attention(load_toy(kind), 128)


def test_a_mixture_of_experts_and_latent_attention_pass_the_check_at_start() -> None:
    check_attention(
        load_toy("qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16), 128
    )
    latent = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1}
    more = {"v_head_dim": 24, "topk_group": 1, "num_key_value_heads": 4}
    check_attention(load_toy("deepseek_v3", **latent, **experts, **more), 128)
