"""At most how many characters one token can have, so that a text is certainly too long. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SHRINKAGE = {"Lowercase": 1, "NFC": 2, "NFD": 1, "Prepend": 1}
"""At most how many characters a normalizer turns into one byte. NFC turns up to three (u, diaeresis, macron)
into a character of two bytes."""
KEEPING = ("ByteLevel", "Split", "Digits", "Punctuation")
"""Pre-tokenizers that drop nothing, unless they are told to remove what they split at."""
UNPROVEN = 1024
"""Characters per token if a tokenizer may drop or merge text (white space, unknown words). This bound is not
proven, but no text that people write comes near it."""


def characters_per_token(tokenizer: Mapping[str, Any], longest: int) -> int:
    """At most how many characters become one token; `tokenizer` is its JSON, `longest` its longest token.

    Exact for tokenizers over bytes: a token has at most `longest` bytes, and a character at least one.
    """
    shrink = _shrinkage(tokenizer)
    if shrink is None or not _over_bytes(tokenizer) or any(map(_swallows_spaces, _added(tokenizer))):
        return max(longest, UNPROVEN)
    return shrink * longest


def _shrinkage(tokenizer: Mapping[str, Any]) -> int | None:
    """How far the normalizers shrink a text; None if that is not known."""
    shrink = 1
    for part in _parts(tokenizer.get("normalizer"), "normalizers"):
        if part["type"] not in SHRINKAGE:
            return None
        shrink *= SHRINKAGE[part["type"]]
    return shrink


def _over_bytes(tokenizer: Mapping[str, Any]) -> bool:
    """Whether every byte of the text ends in some token."""
    parts = list(_parts(tokenizer.get("pre_tokenizer"), "pretokenizers"))
    kept = all(part["type"] in KEEPING and part.get("behavior") != "Removed" for part in parts)
    return kept and any(part["type"] == "ByteLevel" for part in parts)


def _parts(section: Mapping[str, Any] | None, name: str) -> Iterator[Mapping[str, Any]]:
    """A section's parts, those of sequences one by one."""
    if section is None:
        return
    if section["type"] != "Sequence":
        yield section
        return
    for part in section[name]:
        yield from _parts(part, name)


def _added(tokenizer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(tokenizer.get("added_tokens") or ())


def _swallows_spaces(token: Mapping[str, Any]) -> bool:
    return bool(token.get("lstrip") or token.get("rstrip"))
