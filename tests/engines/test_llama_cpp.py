"""GGUF files against llama.cpp itself: the same ids, and the same log-probs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from afterwit.errors import SettingError
from afterwit.gguf.file import read_head
from afterwit.gguf.read import write_folder
from afterwit.gguf.vocabulary import tokenizer_of
from afterwit.gguf.write import write_adapter, write_model
from tests.servers import llama_cpp
from tests.servers.published import FILE, published
from tests.servers.texts import texts

pytestmark = pytest.mark.engines

TEXTS = tuple(texts(1000))
SAID = (
    ("What is the capital of France?", "The capital of France is Paris, which lies on the river Seine."),
    ("Add two numbers in Python.", "def add(a, b):\n    return a + b\n\nprint(add(2, 3))  # prints 5"),
    ("Tell me about cats.", "Cats are small animals that sleep for most of the day and hunt at night."),
    (
        "Why is the sky blue?",
        "Air scatters blue light more than red light, so blue reaches us from all sides.",
    ),
    ("Name three fruits.", "1. Apples\n2. Bananas\n3. Oranges"),
    (
        "Write a short letter.",
        "Dear Anna,\n\nThank you for your kind words. I hope to see you soon.\n\nYours, Ben",
    ),
)
ROWS = [
    f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>"
    for asked, answer in SAID
]
QUANTISED = 0.08
"""Nats, in the mean, by which its kernels may differ on 4-bit weights: they round activations to 8 bits."""
EXACT, ROUNDED = 0.005, 0.03
"""On single precision, and on bfloat16, to which it rounds activations too."""
STRIPPED = {"phi-3"}
"""Vocabularies of models whose special tokens llama.cpp has take white space away: none that is read."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published model, from its file in 4 bits."""
    published()
    place = tmp_path_factory.mktemp("smollm2")
    write_folder(read_head(FILE), place)
    return place


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [tokenizer.encode(row, add_special_tokens=False).ids for row in ROWS]


@pytest.fixture(scope="module")
def adapter(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In PEFT's format, on all linear layers, far from the base."""
    place = tmp_path_factory.mktemp("adapter")
    model = get_peft_model(loaded(folder), LoraConfig(r=8, lora_alpha=24, target_modules="all-linear"))
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.04, generator=generator)
    model.save_pretrained(place)
    write_adapter(folder, place, place / "adapter.gguf", name="far")
    return place


def loaded(folder: Path) -> torch.nn.Module:
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model


@torch.no_grad()
def transformers(model: torch.nn.Module, rows: list[list[int]]) -> torch.Tensor:
    found = []
    for row in rows:
        logprobs_TV = model(input_ids=torch.tensor([row])).logits[0, :-1].log_softmax(-1)
        found.append(logprobs_TV.gather(1, torch.tensor(row[1:])[:, None])[:, 0])
    return torch.cat(found)


def llama(model: Path, rows: list[list[int]], adapter: Path | None = None) -> torch.Tensor:
    return torch.tensor([each for row in llama_cpp.logprobs(model, rows, adapter) for each in row])


def gap(first: torch.Tensor, second: torch.Tensor) -> float:
    return (first - second).abs().mean().item()


def ids_differ(file: Path) -> list[str]:
    tokenizer, differ = Tokenizer.from_str(json.dumps(tokenizer_of(read_head(file)))), set[str]()
    for begin in (False, True):
        theirs = llama_cpp.tokens(file, TEXTS, begin=begin)
        for text, ids in zip(TEXTS, theirs, strict=True):
            if tokenizer.encode(text, add_special_tokens=begin).ids != ids:
                differ.add(text)
    return sorted(differ)


def test_llama_cpp_has_the_same_ids_for_the_published_model(folder: Path) -> None:
    assert ids_differ(FILE) == []


def test_llama_cpp_has_the_same_ids_for_every_vocabulary_that_is_read() -> None:
    read = []
    for file in llama_cpp.vocabularies():
        name = file.stem.removeprefix("ggml-vocab-")
        try:
            tokenizer_of(read_head(file))
        except SettingError:
            continue
        if name not in STRIPPED:
            assert ids_differ(file) == [], name
            read.append(name)
    assert {"llama-bpe", "llama-spm", "qwen2", "gpt-2", "starcoder", "deepseek-coder", "command-r"} <= set(
        read
    )


def test_llama_cpp_has_the_log_probs_of_the_weights_that_were_read(
    folder: Path, rows: list[list[int]]
) -> None:
    assert gap(llama(FILE, rows), transformers(loaded(folder), rows)) <= QUANTISED


def test_llama_cpp_has_the_log_probs_of_an_adapter(
    folder: Path, adapter: Path, rows: list[list[int]], tmp_path: Path
) -> None:
    """On the file in 4 bits within its noise; on exact weights a head's rows out of order would show."""
    write_model(folder, tmp_path / "exact.gguf", "f32", name="exact")
    base, theirs = loaded(folder), transformers(PeftModel.from_pretrained(loaded(folder), adapter), rows)
    assert gap(theirs, transformers(base, rows)) > 2 * QUANTISED
    assert gap(llama(tmp_path / "exact.gguf", rows, adapter / "adapter.gguf"), theirs) <= EXACT
    assert gap(llama(FILE, rows, adapter / "adapter.gguf"), theirs) <= QUANTISED


@pytest.mark.parametrize(("kind", "most"), [("f16", EXACT), ("bf16", ROUNDED), ("q8_0", QUANTISED)])
def test_llama_cpp_answers_alike_with_a_written_file(
    folder: Path, rows: list[list[int]], tmp_path: Path, kind: str, most: float
) -> None:
    file = tmp_path / "model.gguf"
    write_model(folder, file, kind, name="written")
    assert gap(llama(file, rows), transformers(loaded(folder), rows)) <= most
    assert ids_differ(file) == []
