"""Ids of a text by tiktoken, several times as fast as by `tokenizers`, for tokenizers that it equals.

Both split a text into words by one pattern, and merge the bytes of each word pair by pair. `tokenizers`
merges the pair that comes first in a list of pairs, tiktoken the one whose joined bytes come first in the
vocabulary. That is the same pair if each entry of the vocabulary, merged by itself, becomes that entry alone:
as long as nothing was merged across the ends of a stretch of bytes, inside it was merged what is merged when
it stands alone, so that the last two parts of an entry are always the same two. This is checked for every
entry. Where a pattern may be read in two ways, in its classes of characters, samples of them are compared.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import tiktoken
from tokenizers import AddedToken, Tokenizer, models

MOST_CHARACTERS = 100_000
"""Of a text. A longer one may be a run of white space that is too long for tiktoken's pattern matcher."""
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The pattern of a tokenizer whose file names none."""
FOREIGN = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
"""Options of a model that tiktoken does not have."""
OF_A_CATEGORY = 8
"""Characters of each Unicode category that are compared."""
AROUND = ("{}", "a{}", "{}a", " {}", "{} ", "1{}.", "{0}{0}", "'{}")
"""Where they stand."""


class BytePairs:
    """Ids of texts, to which nothing is added. Any thread may use it."""

    def __init__(
        self, encoding: tiktoken.Encoding, ids: Sequence[int], added: Mapping[str, int], raw: Collection[str]
    ) -> None:
        """`ids[rank]`: the id of the entry with that rank. `raw`: those of `added` that are found first."""
        self._encoding, self._ids, self._added = encoding, ids, added
        self._raw, self._other = _any_of(raw), _any_of(set(added) - set(raw))

    @staticmethod
    def takes(text: str) -> bool:
        """Whether the text can be read here: it is not too long, and normalised (NFC) already."""
        return len(text) <= MOST_CHARACTERS and (text.isascii() or unicodedata.is_normalized("NFC", text))

    def __call__(self, text: str) -> list[int]:
        """Raises UnicodeEncodeError for half a surrogate pair."""
        text.encode()
        ids: list[int] = []
        for stretch, is_token in _split(self._raw, text):
            for part, is_other in ((stretch, True),) if is_token else _split(self._other, stretch):
                if is_other:
                    ids.append(self._added[part])
                else:
                    ids += map(self._ids.__getitem__, self._encoding.encode_ordinary(part))
        return ids


def byte_pairs_of(tokenizer: Tokenizer) -> BytePairs | None:
    """What reads texts as this tokenizer does; None if that is not certain."""
    described = json.loads(tokenizer.to_str())
    pattern, model = _pattern(described), described["model"]
    added = tokenizer.get_added_tokens_decoder()
    if pattern is None or not _is_plain(model) or not all(map(_is_simple, added.values())):
        return None
    entries = _by_rank(model)
    if entries is None or not _stand_alone(entries, model):
        return None
    ranks = {bytes(map(BYTES.__getitem__, entry)): rank for rank, entry in enumerate(entries)}
    found = BytePairs(
        tiktoken.Encoding("model", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}),
        [model["vocab"][entry] for entry in entries],
        {token.content: index for index, token in added.items()},
        [token.content for token in added.values() if not token.normalized],
    )
    return found if _agree(tokenizer, found) else None


def _any_of(tokens: Collection[str]) -> re.Pattern[str] | None:
    """What finds the first of the tokens in a text, and of several that begin there the longest."""
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if tokens else None


def _split(tokens: re.Pattern[str] | None, text: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text, each with whether it is one of the tokens."""
    parts = [text] if tokens is None else tokens.split(text)
    return ((part, bool(place % 2)) for place, part in enumerate(parts) if part)


def _pattern(described: Mapping[str, Any]) -> str | None:
    """The pattern of the tokenizer's words; None if it does more than to split by one and to read bytes."""
    if (described["normalizer"] or {"type": "NFC"})["type"] != "NFC":
        return None
    splitter = described["pre_tokenizer"] or {}
    match splitter.get("pretokenizers", [splitter]):
        case [{"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]:
            return GPT2
        case [
            {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ]:
            return pattern
    return None


def _is_plain(model: Mapping[str, Any]) -> bool:
    return model["type"] == "BPE" and not any(model.get(option) for option in FOREIGN)


def _is_simple(token: AddedToken) -> bool:
    """Whether a token is found wherever its characters are, and takes nothing beside it."""
    choosy = token.lstrip or token.rstrip or token.single_word
    return not choosy and unicodedata.is_normalized("NFC", token.content)


def _by_rank(model: Mapping[str, Any]) -> list[str] | None:
    """The bytes, then the joined entries in the order of their merges.

    None if an entry is missing, or if merges of two entries take turns.
    """
    if not all(one in model["vocab"] for one in BYTES):
        return None
    merged = ["".join(_pair(written)) for written in model["merges"]]
    entries = [one for place, one in enumerate(merged) if place == 0 or one != merged[place - 1]]
    known = [*BYTES, *entries]
    return known if len(set(known)) == len(known) and set(known) <= set(model["vocab"]) else None


def _stand_alone(entries: Sequence[str], model: Mapping[str, Any]) -> bool:
    """Whether each entry, merged by itself, becomes that entry alone, and no other entry can be met."""
    if model.get("ignore_merges") and len(entries) != len(model["vocab"]):
        return False  # a word that is an entry is not merged there, and may be one that no merge makes
    pairs = list(map(_pair, model["merges"]))
    merging = models.BPE(vocab=model["vocab"], merges=pairs, cache_capacity=0)
    return all(len(merging.tokenize(entry)) == 1 for entry in entries)


def _pair(written: str | Sequence[str]) -> tuple[str, str]:
    """A merge: older files join its two parts with a space."""
    first, second = written.split(" ") if isinstance(written, str) else written
    return first, second


def _agree(tokenizer: Tokenizer, found: BytePairs) -> bool:
    """Whether both read some characters of each category alike, in several places."""
    theirs = tokenizer.encode_batch_fast(list(_samples()), add_special_tokens=False)
    return all(found(text) == read.ids for text, read in zip(_samples(), theirs, strict=True))


@cache
def _samples() -> tuple[str, ...]:
    categories = defaultdict[str, list[str]](list)
    random = Random(0)
    for number in (*range(0x800), *random.choices(range(0x800, sys.maxunicode), k=20_000)):
        categories[unicodedata.category(chr(number))].append(chr(number))
    categories.pop("Cs", None)
    chosen = (random.sample(one, min(OF_A_CATEGORY, len(one))) for one in categories.values())
    texts = (around.format(character) for some in chosen for character in some for around in AROUND)
    return tuple(text for text in texts if BytePairs.takes(text))


def _byte_characters() -> dict[str, int]:
    """The character that byte-level vocabularies write for each byte: itself, if Latin-1 can print it."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = (byte for byte in range(0x100) if byte not in shown)
    return {chr(byte): byte for byte in sorted(shown)} | {
        chr(0x100 + place): byte for place, byte in enumerate(hidden)
    }


BYTES = _byte_characters()
