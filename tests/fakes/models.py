"""Small random models in real Hugging Face folders, made offline, with tokenizer and chat template."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Starcoder2Config,
)

from tests.fakes.templates import LLAMA3_TEMPLATE, QWEN3_TEMPLATE

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

CORPUS = (
    "Read the file before you edit it. Please write a short answer with three friendly steps.",
    "The quick brown fox jumps over the lazy dog; 0123456789 times, then stops and asks: why?",
    '{"name": "read_file", "arguments": {"path": "notes/todo.txt"}} returned 12 lines of text.',
    "system user assistant tool thinking hello world thanks, that is exactly what I wanted!",
)

QWEN3_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN3_MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
LLAMA3_SPECIALS = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
)


def made_once(make: Callable[..., Path]) -> Callable[..., Path]:
    """`make(folder, ...)` writes the same files for the same arguments: later times copy them."""
    kept: dict[str, dict[str, bytes]] = {}

    @wraps(make)
    def copied(folder: Path, **given: Any) -> Path:
        named = repr(sorted(given.items()))
        if named not in kept:
            with tempfile.TemporaryDirectory() as first:
                kept[named] = {path.name: path.read_bytes() for path in make(Path(first), **given).iterdir()}
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in kept[named].items():
            (folder / name).write_bytes(content)
        return folder

    return copied


@made_once
def tiny_qwen3(
    folder: Path, *, seed: int = 0, corpus: tuple[str, ...] = CORPUS, vocabulary: int = 500, **config: Any
) -> Path:
    """A two-layer Qwen3 (tied embeddings, 457 ids, context 2048) in `folder`; `config` overrides fields.

    Its tokenizer learns at most `vocabulary` ids from `corpus`.
    """
    tokenizer = _tokenizer(QWEN3_SPECIALS, QWEN3_MARKERS, corpus, vocabulary)
    ids = {token: tokenizer.token_to_id(token) for token in QWEN3_SPECIALS}
    shape = _shape(tokenizer, tie_word_embeddings=True, head_dim=16) | config
    shape |= {"eos_token_id": ids["<|im_end|>"], "pad_token_id": ids["<|endoftext|>"]}
    save_random(folder, Qwen3Config(**shape), seed)
    named = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    _save_tokenizer(folder, tokenizer, QWEN3_TEMPLATE, named)
    return folder


@made_once
def tiny_llama(folder: Path, *, seed: int = 0, **config: Any) -> Path:
    """A two-layer Llama with its own tokenizer and the Llama 3 template in `folder`; several end ids."""
    tokenizer = _tokenizer(LLAMA3_SPECIALS, ())
    ids = {token: tokenizer.token_to_id(token) for token in LLAMA3_SPECIALS}
    shape = _shape(tokenizer, tie_word_embeddings=False) | config
    shape |= {"bos_token_id": ids["<|begin_of_text|>"]}
    shape |= {"eos_token_id": [ids["<|end_of_text|>"], ids["<|eom_id|>"], ids["<|eot_id|>"]]}
    save_random(folder, LlamaConfig(**shape), seed)
    named = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    _save_tokenizer(folder, tokenizer, LLAMA3_TEMPLATE, named)
    return folder


@made_once
def tiny_starcoder2(folder: Path, *, seed: int = 0, **config: Any) -> Path:
    """A two-layer Starcoder2 in `folder`, with the tokenizer of `tiny_qwen3`.

    In float64 nothing in it rounds: norms of Qwen3 and Llama go through float32.
    """
    tokenizer = _tokenizer(QWEN3_SPECIALS, QWEN3_MARKERS)
    ids = {token: tokenizer.token_to_id(token) for token in QWEN3_SPECIALS}
    shape = _shape(tokenizer, tie_word_embeddings=True) | config
    shape |= {"eos_token_id": ids["<|im_end|>"], "pad_token_id": ids["<|endoftext|>"]}
    shape |= {"bos_token_id": ids["<|endoftext|>"], "sliding_window": None}
    save_random(folder, Starcoder2Config(**shape), seed)
    named = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    _save_tokenizer(folder, tokenizer, QWEN3_TEMPLATE, named)
    return folder


def reweighted(folder: Path, source: Path, *, seed: int, scale: float = 0.02) -> Path:
    """`source` as another version in `folder`: the same config, every weight moved by seeded noise."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=scale)
    model.save_pretrained(folder)
    return folder


def _shape(tokenizer: Tokenizer, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "initializer_range": 0.2,
    } | more


def save_random(folder: Path, config: PreTrainedConfig, seed: int) -> None:
    """Weights wide enough (0.2) that the next token's distribution is far from uniform."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)


def with_tokenizer_of(source: Path, folder: Path) -> Path:
    """`folder`, with the tokenizer and the template of the model in `source`."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (source / name).exists():
            shutil.copy(source / name, folder)
    return folder


def _save_tokenizer(folder: Path, tokenizer: Tokenizer, template: str, named: dict[str, str]) -> None:
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **named)
    fast.save_pretrained(folder)


@cache
def _tokenizer(
    specials: tuple[str, ...],
    markers: tuple[str, ...],
    corpus: tuple[str, ...] = CORPUS,
    vocabulary: int = 500,
) -> Tokenizer:
    """A byte-level BPE that can write any text; `markers` are added tokens that are not special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus * 4, trainer)
    tokenizer.add_special_tokens(list(specials))
    tokenizer.add_tokens(list(markers))
    return tokenizer
