"""At most how many characters one token can have."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from afterwit.chat_format.render import SHRINKAGE, UNPROVEN, characters_per_token

BYTES = {"type": "ByteLevel", "add_prefix_space": False}


def over_bytes(normalizer: Any = None) -> Tokenizer:
    """A tokenizer over bytes, whose longest token is eight spaces."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges, vocabulary = [], {piece: index for index, piece in enumerate(alphabet)}
    for length in (1, 2, 4):
        merges.append(("\u0120" * length, "\u0120" * length))
        vocabulary["\u0120" * 2 * length] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize("normalizer", [None, normalizers.NFC(), normalizers.NFD(), normalizers.Lowercase()])
@given(text=st.text(st.sampled_from(" aeu\u0301\u0308\u0304\u1100\u1161\u11a8\u0130\U0001f600"), max_size=60))
def test_no_text_has_more_characters_than_the_bound(normalizer: Any, text: str) -> None:
    tokenizer = over_bytes(normalizer)
    bound = characters_per_token(json.loads(tokenizer.to_str()), 8)
    assert bound == 8 * (2 if isinstance(normalizer, normalizers.NFC) else 1)
    assert len(text) <= bound * len(tokenizer.encode(text).ids)


def test_no_character_that_nfc_composes_breaks_its_bound() -> None:
    points = (chr(point) for point in range(0x30000) if not 0xD800 <= point < 0xE000)
    apart = (unicodedata.normalize("NFD", character) for character in points)
    assert all(
        len(text) <= SHRINKAGE["NFC"] * len(unicodedata.normalize("NFC", text).encode()) for text in apart
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFKC"}]}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "Split", "behavior": "Removed"}, BYTES],
            }
        },
        {"pre_tokenizer": None},
        {"added_tokens": [{"content": "<mask>", "lstrip": True}]},
    ],
)
def test_a_tokenizer_that_may_drop_text_has_a_generous_bound(changes: dict[str, Any]) -> None:
    plain = {
        "normalizer": None,
        "pre_tokenizer": BYTES,
        "added_tokens": [{"content": "<end>", "lstrip": False}],
    }
    assert characters_per_token(plain, 12) == 12
    assert characters_per_token(plain | changes, 12) == UNPROVEN
