"""The files of a Hugging Face model folder: its tokenizer, special tokens, and the tokens that end a turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from afterwit.errors import SettingError

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read_json(path: Path) -> dict[str, Any]:
    """The file's JSON object, empty if the file is missing. SettingError for any other content."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise SettingError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise SettingError(f"{path} holds no JSON object")
    return data


def special_tokens(folder: Path) -> dict[str, str]:
    """The text of each special token that the tokenizer's configuration names."""
    config = read_json(folder / "special_tokens_map.json") | read_json(folder / "tokenizer_config.json")
    tokens = {}
    for name in SPECIAL_TOKENS:
        value = config.get(name)
        content = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(content, str):
            tokens[name] = content
    return tokens


def tokenizer_of(folder: Path) -> Tokenizer:
    """The folder's tokenizer. SettingError if it cannot be read."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise SettingError(f"{folder} has no tokenizer.json: it is not a model folder with a fast tokenizer")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise SettingError(f"{path} cannot be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def end_ids(folder: Path, token_to_id: Callable[[str], int | None]) -> frozenset[int]:
    """The ids that end a turn: all that the generation config, the model's config or the tokenizer name.

    Engine and detokenizer both use this rule: the text hides an end, so the engine must not sample past one.
    SettingError if the folder names none.
    """
    eos = special_tokens(folder).get("eos_token")
    ids = [] if eos is None else [token_to_id(eos)]
    config = read_json(folder / "config.json")
    for source in (read_json(folder / "generation_config.json"), config, config.get("text_config") or {}):
        value = source.get("eos_token_id")
        ids += value if isinstance(value, list) else [value]
    ends = frozenset(index for index in ids if isinstance(index, int))
    if not ends:
        raise SettingError(f"{folder} names no end-of-turn token (eos_token, eos_token_id)")
    return ends
