"""The three forwards against transformers' own, within 5e-6."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM

from afterwit.engines.embedded import engine
from afterwit.engines.embedded.cache import Batch, Beginning, Row
from afterwit.engines.embedded.engine import attend_in_slots
from afterwit.engines.embedded.fitness import check_attention
from afterwit.engines.embedded.forward import decode, prefill, score, with_beginnings
from afterwit.packing.attention import FLASH_CPU, PORTABLE, Kernel
from tests.engines.talk import plain_logits

CPU = torch.device("cpu")
CLOSE = {"atol": 5e-6, "rtol": 0}


@cache
def load_module(folder: Path) -> Any:
    """The served module of a folder: no test changes it."""
    return engine.load_module(folder, CPU, torch.float32)


def small(values: torch.Tensor) -> torch.Tensor:
    """Logits at unit scale: the small models' are tens, real ones' are not."""
    return values / values.abs().max()


@torch.inference_mode()
def test_pieces_rows_and_ragged_steps_give_the_plain_logits(family: Path) -> None:
    module = load_module(family)
    texts = [[(7 * i + 11 * row) % 450 for i in range(40 + 90 * row)] for row in range(4)]
    batch = Batch(slots=4, context_length=512)
    for place, ids in enumerate(texts):
        row = read(module, ids[:-2], piece=50)
        batch.put(place, row.layers_between(0, len(ids) - 2))
    first = decode(module, batch, 0, [ids[-2] for ids in texts], [len(ids) - 2 for ids in texts])
    second = decode(module, batch, 1, [ids[-1] for ids in texts[1:]], [len(ids) - 1 for ids in texts[1:]])
    for place, ids in enumerate(texts):
        plain = plain_logits(family, ids)
        torch.testing.assert_close(small(first[place]), small(plain[-2]), **CLOSE)
        if place:
            torch.testing.assert_close(small(second[place - 1]), small(plain[-1]), **CLOSE)


@torch.inference_mode()
def test_beginnings_that_responses_share_where_they_are_give_the_plain_logits(family: Path) -> None:
    """Two rows share one row's text, one has another's, one has none."""
    module = load_module(family)
    shared, other = [(7 * i) % 450 for i in range(90)], [(13 * i) % 450 for i in range(33)]
    texts = [[*shared, 5, 6], [*other, 8], [*shared[:60], 9, 10, 11], [12, 13]]
    begun, elsewhere = read(module, shared), read(module, other)
    beginnings = [Beginning(begun, 90), Beginning(elsewhere, 32), Beginning(begun, 60), None]
    batch = Batch(slots=4, context_length=512)
    for place, (ids, beginning) in enumerate(zip(texts, beginnings, strict=True)):
        start = beginning.length if beginning else 0
        batch.put(place, read(module, ids[:-1]).layers_between(start, len(ids) - 1))
    logits = decode(module, batch, 0, [ids[-1] for ids in texts], [len(ids) - 1 for ids in texts], beginnings)
    for place, ids in enumerate(texts):
        torch.testing.assert_close(small(logits[place]), small(plain_logits(family, ids)[-1]), **CLOSE)


@pytest.mark.parametrize("kernel", [FLASH_CPU, PORTABLE])
def test_every_kernel_adds_a_beginning_to_a_rows_own_slots(kernel: Kernel) -> None:
    """Two rows of one beginning of 5 positions and one without; 4 query heads, 2 key heads, 3 slots."""
    row, batch = Row(context_length=64), Batch(slots=3, context_length=64)
    row.extend({0: (torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8))}, [1] * 5)
    beginning = Beginning(row, 5)
    hidden_BL = batch.aim(0, [7, 6, 2], [beginning, beginning, None], CPU)
    for place in range(3):
        batch.put(place, {0: (torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 8))})
    key, value = batch.update(torch.randn(3, 2, 1, 8), torch.randn(3, 2, 1, 8), 0)
    query, mask_BL = torch.randn(3, 4, 1, 8), torch.zeros(3, 3).masked_fill(hidden_BL, -torch.inf)
    out = with_beginnings(query, key, value, mask_BL[:, None, None], 0.3, batch, kernel)
    begun = row.layer(0, 5)
    for place, (slots, parts) in enumerate([(3, 1), (2, 1), (3, 0)]):
        keys, values = (
            torch.cat([whole[0]] * parts + [own[place, :, :slots]], 1).repeat_interleave(2, 0)
            for whole, own in zip(begun, (key, value), strict=True)
        )
        plain = (query[place] @ keys.transpose(1, 2) * 0.3).softmax(-1) @ values
        torch.testing.assert_close(out[place], plain.transpose(0, 1), **CLOSE)


@torch.inference_mode()
def test_a_copy_of_a_beginning_and_a_row_that_was_cut_go_on_as_if_read_anew(qwen: Path) -> None:
    module = load_module(qwen)
    ids, others = list(range(3, 90)), [*range(3, 50), *range(200, 230)]
    row = read(module, ids)
    copy = row.first(47, coming=len(others))
    of_the_copy = prefill(module, copy, others[47:])
    row.cut(47)
    of_the_cut = prefill(module, row, others[47:])
    for logits in (of_the_copy, of_the_cut):
        torch.testing.assert_close(small(logits[-1]), small(plain_logits(qwen, others)[-1]), **CLOSE)
    assert row.ids.tolist() == copy.ids.tolist() == others


@torch.inference_mode()
def test_rows_that_move_keep_their_keys(qwen: Path) -> None:
    module = load_module(qwen)
    batch = Batch(slots=4, context_length=64)
    texts = [[5, 6, 7], [8, 9, 10, 11], [12, 13]]
    for place, ids in ((0, texts[1]), (2, texts[2])):
        batch.put(place, read(module, ids).layers_between(0, len(ids)))
    batch.move(2, 1, 2)
    logits = decode(module, batch, 0, [20, 21], [4, 2])
    torch.testing.assert_close(small(logits[0]), small(plain_logits(qwen, [*texts[1], 20])[-1]), **CLOSE)
    torch.testing.assert_close(small(logits[1]), small(plain_logits(qwen, [*texts[2], 21])[-1]), **CLOSE)


@torch.inference_mode()
def test_a_row_that_failed_spoils_none_that_comes_after_it(qwen: Path) -> None:
    """Masked or not, a key that is not a number makes every score one that is not."""
    module = load_module(qwen)
    batch = Batch(slots=2, context_length=64)
    broken = {
        index: (keys * torch.nan, values * torch.nan)
        for index, (keys, values) in read(module, [1] * 20).layers_between(0, 20).items()
    }
    batch.put(0, broken)
    batch.wipe(0)
    batch.put(0, read(module, [5, 6, 7]).layers_between(0, 3))
    logits = decode(module, batch, 0, [8], [3])
    torch.testing.assert_close(small(logits[0]), small(plain_logits(qwen, [5, 6, 7, 8])[-1]), **CLOSE)


@given(ids=st.lists(st.integers(0, 449), min_size=2, max_size=70), chunk=st.integers(1, 80))
@settings(max_examples=15)
def test_a_score_is_that_of_a_plain_forward_in_any_chunks(qwen: Path, ids: list[int], chunk: int) -> None:
    module = load_module(qwen)
    plain = plain_logits(qwen, ids)[:-1].log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert score(module, ids, chunk=chunk) == pytest.approx(plain.tolist(), abs=1e-4)


def test_the_batchs_storage_grows_with_need_and_is_freed() -> None:
    batch = RecordingBatch(slots=8, context_length=1000)
    layer = (torch.zeros(1, 2, 900, 8),) * 2
    for place, length in ((0, 10), (0, 300), (3, 300), (7, 900)):
        batch.put(place, {0: (layer[0][:, :, :length], layer[1][:, :, :length])})
    kept = {(1, 256): 2, (1, 512): 2, (4, 512): 2, (8, 1000): 2}
    assert batch.allocated == kept
    batch.clear()
    batch.put(0, {0: layer})
    assert batch.allocated == kept | {(1, 1000): 2}


class RecordingBatch(Batch):
    """Counts the tensors it was given, by rows and length."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.allocated: Counter[tuple[int, int]] = Counter()

    def allocate(self, like_BHQD: torch.Tensor, rows: int, length: int) -> torch.Tensor:
        made = super().allocate(like_BHQD, rows, length)
        self.allocated[made.shape[0], made.shape[2]] += 1
        return made


class ScarceRow(Row):
    """On a device with room for 512 positions."""

    def allocate(self, like_BHQD: torch.Tensor, rows: int, length: int) -> torch.Tensor:
        if length > 512:
            raise RuntimeError("out of memory")
        return super().allocate(like_BHQD, rows, length)


@torch.inference_mode()
def test_a_row_for_which_memory_ends_keeps_what_it_had() -> None:
    module, row = load_toy(), ScarceRow(context_length=1000)
    prefill(module, row, [1, 2, 3])
    with pytest.raises(RuntimeError, match="out of memory"):
        prefill(module, row, [1] * 600)
    logits = prefill(module, row, [4])
    plain = module(input_ids=torch.tensor([[1, 2, 3, 4]]), use_cache=False).logits[0, -1]
    torch.testing.assert_close(small(logits[-1]), small(plain), **CLOSE)


@torch.inference_mode()
@pytest.mark.parametrize("keep", [0, 1, 3])
def test_a_piece_in_half_precision_copies_no_head(keep: int) -> None:
    """Torch multiplies a slice of a row with a copy of the weights: 20 times the work for one position."""
    module = load_toy(vocab_size=20_000).bfloat16()
    row = Row(context_length=64)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        logits = prefill(module, row, [5, 6, 7, 8], keep=keep)
    head = module.get_output_embeddings().weight
    assert max(event.self_cpu_memory_usage for event in profiled.events()) < head.nbytes
    plain = module(input_ids=torch.tensor([[5, 6, 7, 8]]), use_cache=False).logits[0, 4 - keep :]
    torch.testing.assert_close(logits, plain, atol=0.02, rtol=0.02)


def test_storage_is_made_at_once_for_the_text_that_is_coming() -> None:
    module, row = load_toy(), Row(context_length=1024, coming=700)
    prefill(module, row, [1] * 10)
    at_first = row.nbytes
    prefill(module, row, [1] * 690)
    assert row.nbytes == at_first


def read(module: Any, ids: list[int], *, piece: int = 1000) -> Row:
    """A row that has read these ids."""
    row = Row(context_length=2048, coming=len(ids))
    for start in range(0, len(ids), piece):
        prefill(module, row, ids[start : start + piece])
    return row


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


def load_toy(kind: str = "llama", *, seed: int = 0, **more: object) -> torch.nn.Module:
    config = AutoConfig.for_model(kind, **SHAPE | more)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()


@pytest.mark.parametrize(
    "kind",
    ["llama", "qwen2", "qwen3", "smollm3", "phi3", "gemma", "olmo2", "granite", "gpt_neox", "stablelm"],
)
def test_models_with_standard_attention_pass_the_check_at_start(kind: str) -> None:
    module = load_toy(kind)
    attend_in_slots(module)
    assert check_attention(module, 128) == module._supports_attention_backend
    assert module._supports_attention_backend == (kind != "stablelm")


def test_a_model_whose_attention_is_its_own_gets_copies() -> None:
    assert not check_attention(load_toy(), 128), "transformers' SDPA knows nothing of beginnings"


def test_a_mixture_of_experts_and_latent_attention_pass_the_check_at_start() -> None:
    check_attention(
        load_toy("qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16), 128
    )
    latent = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1}
    more = {"v_head_dim": 24, "topk_group": 1, "num_key_value_heads": 4}
    check_attention(load_toy("deepseek_v3", **latent, **experts, **more), 128)
