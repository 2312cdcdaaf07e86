"""Models as GGUF files and back: weights, settings, vocabulary; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from afterwit.chat_format.folder import end_ids
from afterwit.errors import SettingError
from afterwit.gguf.family import config_of, divisors_of, fields_of, turned, turned_back
from afterwit.gguf.file import Head, is_gguf, read_head
from afterwit.gguf.read import write_folder
from afterwit.gguf.vocabulary import RULES, _unions, tokenizer_of
from afterwit.gguf.write import write_model
from tests.fakes.models import save_random, tiny_llama, tiny_qwen3, tiny_starcoder2

TEXTS = (
    "",
    "one two  three\n\n\nfour\t5 66 777 8888",
    "I've done it, they'Ll see: ``code``; größer, 日本語, 👩‍💻",
    "<|im_start|>user\nHi<|im_end|>\n<tool_call>{}</tool_call><|eot_id|>",
)


def tiny_qwen2(folder: Path) -> Path:
    """A two-layer Qwen2, whose query, key and value have biases."""
    tiny_qwen3(folder)
    shape = json.loads((folder / "config.json").read_text())
    kept = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    more = {name: shape[name] for name in (*kept, "num_key_value_heads", "eos_token_id")}
    save_random(folder, Qwen2Config(**more, tie_word_embeddings=True), seed=3)
    with_random_biases(folder)
    return folder


def with_random_biases(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.3)
    model.save_pretrained(folder)


def wide_llama(folder: Path) -> Path:
    """A Llama whose heads are as wide as Llama 3.1's, with its rotation."""
    rope: dict[str, Any] = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "rope_theta": 500_000.0,
    }
    rope |= {"rope_type": "llama3", "original_max_position_embeddings": 8192}
    return tiny_llama(folder, rope_parameters=rope, head_dim=128)


MODELS: dict[str, Callable[[Path], Path]] = {
    "qwen3": tiny_qwen3,
    "llama": tiny_llama,
    "qwen2": tiny_qwen2,
    "llama 3.1": wide_llama,
}


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODELS[request.param](tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Head:
    place = tmp_path_factory.mktemp("llama")
    write_model(tiny_llama(place), place / "tiny.gguf", "bf16", name="tiny")
    return read_head(place / "tiny.gguf")


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=torch.arange(1, 40)[None]).logits
    return found


def test_a_model_comes_back_from_a_file_to_the_bit(folder: Path, tmp_path: Path) -> None:
    file, back = tmp_path / "model.gguf", tmp_path / "back"
    back.mkdir()
    write_model(folder, file, "f32", name="tiny")
    write_folder(read_head(file), back)
    first, second = (
        AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32) for place in (folder, back)
    )
    assert second.state_dict().keys() == first.state_dict().keys()
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name]), name
    assert torch.equal(logits(first), logits(second))
    ours, theirs = (Tokenizer.from_file(str(place / "tokenizer.json")) for place in (back, folder))
    for text in TEXTS:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special_tokens=False).ids == ids
        assert ours.decode(ids, skip_special_tokens=False) == text
    assert end_ids(folder, theirs.token_to_id) <= end_ids(back, ours.token_to_id)
    assert (back / "chat_template.jinja").read_text() == (folder / "chat_template.jinja").read_text()


def test_large_weights_become_several_files(head: Head, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    write_folder(head, tmp_path / "one")
    write_folder(head, tmp_path / "many", shard=60_000)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 3
    one, many = (
        AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in ("one", "many")
    )
    assert one.keys() == many.keys()
    assert all(torch.equal(weight, many[name]) for name, weight in one.items())


def test_transformers_reads_the_same_weights_from_the_file(folder: Path, tmp_path: Path) -> None:
    """An independent reader, but for Llama 3.1's rotation and the width of Qwen3's heads, which it loses."""
    if json.loads((folder / "config.json").read_text())["model_type"] == "qwen3":
        tiny_qwen3(
            folder := tmp_path, hidden_size=512, head_dim=128
        )  # 4 heads of 128: transformers' own width
    write_model(folder, tmp_path / "model.gguf", "f32", name="tiny")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32)
    for name, weight in AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).named_parameters():
        assert torch.equal(weight, theirs.get_parameter(name)), name


@pytest.mark.parametrize(("kind", "error"), [("bf16", 2**-8), ("f16", 2**-10), ("q8_0", 1 / 250)])
def test_a_kind_rounds_no_more_than_its_bits(kind: str, error: float, tmp_path: Path) -> None:
    """q8_0 has 127 steps up to the largest of 32 numbers; the folder itself is in bfloat16."""
    model, back = tiny_llama(tmp_path / "model"), tmp_path / "back"
    back.mkdir()
    write_model(model, tmp_path / "model.gguf", kind, name="tiny")
    write_folder(read_head(tmp_path / "model.gguf"), back)
    assert json.loads((back / "config.json").read_text())["dtype"] == "bfloat16"
    first, second = (
        AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32) for place in (model, back)
    )
    for name, weight in first.named_parameters():
        blocks = weight.reshape(-1, 32).abs().amax(1) if kind == "q8_0" else weight.abs().reshape(-1, 32)
        bound = error * (blocks[:, None] if kind == "q8_0" else blocks) + 2**-8 * weight.abs().reshape(-1, 32)
        assert ((weight - second.get_parameter(name)).abs().reshape(-1, 32) <= bound + 1e-7).all(), name


def test_rows_are_turned_as_llama_cpp_turns_them() -> None:
    """By hand: of a head with rows 0 to 5, those of the two halves alternate."""
    rows = torch.arange(12)[:, None].float()
    assert turned(rows, 2).flatten().tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert torch.equal(turned_back(turned(rows, 2), 2), rows)


def test_the_divisors_are_those_of_transformers_rotation(tmp_path: Path) -> None:
    config = AutoConfig.from_pretrained(wide_llama(tmp_path))
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 500_000.0 ** -(torch.arange(0, 128, 2) / 128)
    divisors = torch.tensor(divisors_of(config.rope_parameters, 500_000.0, 128))
    torch.testing.assert_close(plain / divisors, frequencies, rtol=1e-5, atol=0)
    assert divisors.min() == 1
    assert divisors.max() == 8


PIECES = {
    "smollm": "I|'ve| |1|2| cats|,| \n\n|1|.| it|'|S| größer|  | 日本",
    "gpt-2": "I|'ve| 12| cats|,| \n|\n|1|.| it|'|S| größer|  | 日本",
    "qwen2": "I|'ve| |1|2| cats|,| \n\n|1|.| it|'S| größer|  | 日本",
    "llama-bpe": "I|'ve| |12| cats|,| \n\n|1|.| it|'S| größer|  | 日本",
}
"""llama.cpp's pieces of a text, before pairs are merged."""


@pytest.mark.parametrize("name", PIECES)
def test_a_pre_tokenizer_splits_as_its_name_means(head: Head, name: str) -> None:
    text = "I've 12 cats, \n\n1. it'S größer   日本"
    named = replace(head, fields={**head.fields, "tokenizer.ggml.pre": name})
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_of(named)))
    spans = [span for _, span in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    assert "|".join(text[start:end] for start, end in spans) == PIECES[name]


def test_every_rule_loses_no_character(head: Head) -> None:
    for name in RULES:
        named = replace(head, fields={**head.fields, "tokenizer.ggml.pre": name})
        tokenizer = Tokenizer.from_str(json.dumps(tokenizer_of(named)))
        for text in TEXTS[:3]:
            assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def pieces(head: Head, **fields: Any) -> Tokenizer:
    """A vocabulary with scores: the longer a piece, the better."""
    words = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "b",
        "ab",
        "▁ab",
        "ba",
    ]
    kinds = [2, 3, 3, *[6] * 256, *[1] * 6]
    scores = [0.0] * 262 + [-1.0, -2.0, -0.5]
    own = {"model": "llama", "tokens": words, "token_type": kinds, "scores": scores, "unknown_token_id": 0}
    own |= {"bos_token_id": 1, "eos_token_id": 2} | fields
    made = replace(head, fields={f"tokenizer.ggml.{key}": value for key, value in own.items()})
    return Tokenizer.from_str(json.dumps(tokenizer_of(made)))


def test_pieces_merge_the_best_score_first_and_bytes_are_the_rest(head: Head) -> None:
    tokenizer = pieces(head)
    assert tokenizer.encode("ab ab", add_special_tokens=False).tokens == ["▁ab", "▁ab"]
    assert tokenizer.encode("aba", add_special_tokens=False).tokens == [
        "▁",
        "a",
        "ba",
    ]  # not ▁ab, which is worse
    assert tokenizer.encode("é", add_special_tokens=False).tokens == ["▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.encode("a", add_special_tokens=True).tokens == ["<s>", "▁", "a"]
    assert tokenizer.decode(tokenizer.encode("ab éa").ids) == "ab éa"
    bare = pieces(head, add_space_prefix=False, add_bos_token=False)
    assert bare.encode("ab</s>ab").tokens == ["ab", "</s>", "ab"]


class Divided(str):
    """A text that counts the parts that are taken."""

    taken = 0

    def __getitem__(self, part: Any) -> str:
        Divided.taken += 1
        return super().__getitem__(part)


def test_a_long_piece_is_divided_only_where_a_piece_may_end() -> None:
    long = Divided("ab" * 5_000)
    assert not list(_unions({long: 0, "a": 1, "ba": 2}))
    assert Divided.taken <= 4


UNREAD = "name the model's Hugging Face folder or hub id"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"general.architecture": "mamba"},
            f"has the architecture 'mamba', and llama, .* are read: {UNREAD}",
        ),
        ({"general.type": "adapter"}, "holds no model but 'adapter': name the file of the model"),
        ({"split.count": 3}, "is one part of several: join them with `llama-gguf-split --merge`"),
        ({"llama.attention.sliding_window": 64}, "sets llama.attention.sliding_window, which is not read"),
        ({"llama.expert_count": 8}, "sets llama.expert_count, which is not read"),
        ({"llama.rope.dimension_count": 8}, f"dimension_count to 8, and only 16 is read: {UNREAD}"),
        ({"llama.rope.scaling.type": "longrope"}, f"stretches its context by 'longrope', .*: {UNREAD}"),
        ({"llama.block_count": None}, "has no llama.block_count: convert it again"),
        ({"llama.block_count": 3}, "has no tensor blk.2.attn_q.weight"),
        ({"llama.block_count": 1}, "has a tensor blk.1.attn_k.weight, which is not read"),
        (
            {"tokenizer.ggml.pre": "kimi-k2"},
            f"names the pre-tokenizer 'kimi-k2', which is not read: {UNREAD}",
        ),
        ({"tokenizer.ggml.pre": None}, "names no pre-tokenizer, which is not read"),
        ({"tokenizer.ggml.model": "t5"}, "has the vocabulary 't5', and gpt2 and llama are read"),
        (
            {"tokenizer.ggml.merges": ["a zz"]},
            "merges 'a' and 'zz', which are not all tokens: convert it again",
        ),
        ({"tokenizer.ggml.token_type": [1]}, "tokens, but 1 types of tokens: convert it again"),
        ({"tokenizer.chat_template": None}, "has no chat template: take the file of an assistant"),
        ({"tokenizer.chat_template": ["x"]}, "has no chat template: take the file of an assistant"),
        ({"llama.block_count": 2**60}, rf"has {2**60} layers, but \d+ tensors: convert it again"),
        ({"llama.block_count": "2"}, "contradicts itself .*: convert it again"),
        ({"llama.attention.head_count": 0}, "contradicts itself .*: convert it again"),
        ({"llama.embedding_length": 2**62}, "contradicts itself .*: convert it again"),
        ({"llama.rope.freq_base": [1.0]}, "contradicts itself .*: convert it again"),
        ({"split.count": "2"}, "contradicts itself .*: convert it again"),
        ({"tokenizer.ggml.tokens": 7}, "contradicts itself .*: convert it again"),
        ({"tokenizer.ggml.merges": [7]}, "contradicts itself .*: convert it again"),
        ({"tokenizer.ggml.bos_token_id": "x"}, "contradicts itself .*: convert it again"),
    ],
)
def test_a_file_that_is_not_read_is_refused_by_name(
    head: Head, changed: dict[str, Any], words: str, tmp_path: Path
) -> None:
    fields = {key: value for key, value in {**head.fields, **changed}.items() if value is not None}
    with pytest.raises(SettingError, match=words) as refused:
        write_folder(replace(head, fields=fields), tmp_path)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_vocabulary_of_other_weights_is_refused(head: Head, tmp_path: Path) -> None:
    tokens = [*head.fields["tokenizer.ggml.tokens"], "another"]
    kinds = [*head.fields["tokenizer.ggml.token_type"], 1]
    fields = {**head.fields, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    with pytest.raises(
        SettingError, match=rf"has token_embd.weight as \(\d+, 64\), where \({len(tokens)}, 64\)"
    ):
        write_folder(replace(head, fields=fields), tmp_path)


def test_a_quantisation_that_the_library_cannot_undo_is_refused(head: Head, tmp_path: Path) -> None:
    tensors = {
        name: replace(each, kind=int(GGMLQuantizationType.Q8_K)) for name, each in head.tensors.items()
    }
    with pytest.raises(SettingError, match=r"in a quantisation that is not read .*: take another file of it"):
        write_folder(replace(head, tensors=tensors), tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.4, 0.999])
def test_half_a_file_is_refused(head: Head, share: float, tmp_path: Path) -> None:
    whole = head.path.read_bytes()
    half = tmp_path / "half.gguf"
    half.write_bytes(whole[: int(share * len(whole))])
    (tmp_path / "out").mkdir()
    with pytest.raises(SettingError, match=r"is not a whole GGUF file|is cut short") as refused:
        write_folder(read_head(half), tmp_path / "out")
    assert "download it again" in str(refused.value)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("alignment", [0, [32], float("inf")])
def test_a_file_with_an_impossible_alignment_is_refused(alignment: Any, tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "odd.gguf", "llama")
    writer.add_key_value("general.alignment", alignment, GGUFValueType.get_type(alignment))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(SettingError, match="is not a whole GGUF file"):
        read_head(tmp_path / "odd.gguf")


def test_a_file_is_known_by_its_ending_or_by_its_first_bytes(head: Head, tmp_path: Path) -> None:
    blob = tmp_path / "sha256-1234"
    blob.write_bytes(head.path.read_bytes()[:64])
    assert is_gguf(blob)
    assert is_gguf(head.path)
    assert not is_gguf(tmp_path)
    blob.write_bytes(b"{}")
    assert not is_gguf(blob)
    with pytest.raises(SettingError, match="it does not begin with GGUF"):
        read_head(blob)


def test_what_llama_cpp_would_compute_otherwise_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="type 'starcoder2' is not written as GGUF, llama, qwen2, qwen3"):
        write_model(tiny_starcoder2(tmp_path / "s"), tmp_path / "out.gguf", "f32", name="x")
    model = tiny_llama(tmp_path / "m")
    config = AutoConfig.from_pretrained(model)
    config.rope_parameters = {"rope_type": "longrope", "rope_theta": 10_000.0}
    with pytest.raises(SettingError, match="stretched by 'longrope'"):
        fields_of(config)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"] = {"type": "Whitespace"}
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(
        SettingError, match=r"llama.cpp's name for how .* splits a text is not known: write a folder"
    ):
        write_model(model, tmp_path / "out.gguf", "f32", name="x")
    assert not (tmp_path / "out.gguf").exists()


def test_a_stretched_context_comes_back(tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 512}
    write_model(tiny_qwen3(tmp_path, rope_parameters=rope), tmp_path / "m.gguf", "bf16", name="x")
    assert config_of(read_head(tmp_path / "m.gguf"))["rope_parameters"] == rope
