"""Texts read by tiktoken, against the tokenizer itself; and the tokenizers that must not be read so."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from afterwit.chat_format.encode import MOST_CHARACTERS, BytePairs, Encoder, byte_pairs_of
from tests.fakes.models import CORPUS

QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
TOKENS = ("<|im_start|>", "<|im_end|>", "<|im_end|>x")


def untrained(pattern: str | None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return tokenizer
    words = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, as_bytes])
    return tokenizer


def trained(tokenizer: Tokenizer) -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*CORPUS, "don't we'll 12 345 e\u0301\n\n  x"], trainer)
    tokenizer.add_special_tokens(list(TOKENS))
    tokenizer.add_tokens(["<think>", "</think>"])
    return tokenizer


def qwen() -> Tokenizer:
    tokenizer = untrained(QWEN)
    tokenizer.normalizer = normalizers.NFC()
    return trained(tokenizer)


def changed(tokenizer: Tokenizer, change: Callable[[dict[str, Any]], None]) -> Tokenizer:
    described = json.loads(tokenizer.to_str())
    change(described)
    return Tokenizer.from_str(json.dumps(described))


def every_split(described: dict[str, Any]) -> None:
    """As files made of a tiktoken vocabulary list merges: each way to join two entries to a third."""
    model = described["model"]
    vocabulary, pairs = model["vocab"], []
    for entry in sorted(vocabulary, key=vocabulary.get):
        ways = [(entry[:at], entry[at:]) for at in range(1, len(entry))]
        known = [way for way in ways if set(way) <= set(vocabulary)]
        pairs += sorted(known, key=lambda way: [vocabulary[part] for part in way])
    model["merges"] = pairs
    model["ignore_merges"] = True


KINDS = {
    "as Qwen's": qwen,
    "as GPT-2's": lambda: trained(untrained(None)),
    "as Llama 3's": lambda: changed(trained(untrained(LLAMA)), every_split),
}


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    return KINDS[kind]()


@cache
def pairs_of(kind: str) -> BytePairs:
    found = byte_pairs_of(tokenizer_of(kind))
    assert found is not None
    return found


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


texts = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from(
            [*TOKENS, "<think>", "<|im_", "  \n", "\r\n\r\n", "\u3000", "'S", "\u017f", "\u00a0 "]
        ),
        st.sampled_from(CORPUS),
        st.text("abe 1'\n\t", max_size=30),
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
def test_a_text_has_the_tokenizers_own_ids(kind: str, text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    assert pairs_of(kind)(text) == ids_of(tokenizer_of(kind), text)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_character_has_the_tokenizers_own_ids(kind: str) -> None:
    numbers = [number for number in range(sys.maxunicode) if not 0xD800 <= number < 0xE000]
    for begin in range(0, len(numbers), 2_000):
        text = "".join(f"{chr(one)}a {chr(one)}1a{chr(one)}" for one in numbers[begin : begin + 2_000])
        text = unicodedata.normalize("NFC", text)
        assert pairs_of(kind)(text) == ids_of(tokenizer_of(kind), text), hex(numbers[begin])


def test_an_encoder_reads_with_it_only_what_it_takes() -> None:
    """Text that is not normalised, and very long runs of white space, are the tokenizer's own work."""
    tokenizer, read = tokenizer_of("as Qwen's"), []

    class Noting(BytePairs):
        def __init__(self) -> None:
            pass

        def __call__(self, text: str) -> list[int]:
            read.append(text)
            return pairs_of("as Qwen's")(text)

    encoder = Encoder(tokenizer, TOKENS, byte_pairs=Noting())
    long = " " * MOST_CHARACTERS + "x"
    for text in ("e\u0301 " * 200, long, "plain words " * 50, f"{TOKENS[0]}é"):
        assert list(encoder.encode(text)) == ids_of(tokenizer, text)
    assert read == ["plain words " * 50, f"{TOKENS[0]}é"]


def test_half_a_surrogate_pair_is_an_error() -> None:
    with pytest.raises(UnicodeEncodeError):
        pairs_of("as Qwen's")("a\ud800")


def prefixed() -> Tokenizer:
    tokenizer = trained(untrained(None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return tokenizer


def choosy() -> Tokenizer:
    tokenizer = qwen()
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


def folding() -> Tokenizer:
    tokenizer = qwen()
    tokenizer.normalizer = normalizers.NFKC()
    return tokenizer


def unreachable(described: dict[str, Any]) -> None:
    """An entry that its own bytes never become: another pair of them is merged first."""
    described["model"]["vocab"] |= {"zq": 5_000, "qz": 5_001, "zqz": 5_002}
    described["model"]["merges"] += [["q", "z"], ["z", "q"], ["zq", "z"]]


def out_of_turn(described: dict[str, Any]) -> None:
    merges = described["model"]["merges"]
    described["model"]["merges"] = [*merges, merges[0]]


def leaves_out(described: dict[str, Any]) -> None:
    """A pattern that does not match everything: what lies between is a word for `tokenizers` only."""
    described["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": r"\p{L}+|\s+"}


def without_a_byte(described: dict[str, Any]) -> None:
    del described["model"]["vocab"]["\u0100"]


REFUSED = {
    "adds a space": prefixed,
    "a token that takes spaces": choosy,
    "another normalizer": folding,
    "an entry that is never met": lambda: changed(qwen(), unreachable),
    "merges that take turns": lambda: changed(qwen(), out_of_turn),
    "a pattern that leaves text out": lambda: changed(qwen(), leaves_out),
    "a byte without an id": lambda: changed(qwen(), without_a_byte),
    "not byte pairs": lambda: Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="b")),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_tokenizer_that_may_read_otherwise_is_refused(why: str) -> None:
    assert byte_pairs_of(REFUSED[why]()) is None
