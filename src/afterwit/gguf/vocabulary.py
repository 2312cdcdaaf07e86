"""A GGUF file's vocabulary as a tokenizer of the library `tokenizers`, and back.

A file names its pre-tokenizer by a word of llama.cpp's (`tokenizer.ggml.pre`), whose meaning is the code of
llama.cpp: `src/llama-vocab.cpp`, from which the table below is taken.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterwit.chat_format.folder import read_json, special_tokens
from afterwit.errors import SettingError
from afterwit.gguf.file import AGAIN, CONVERT, INSTEAD, Head

KEYS = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
BYTES, PIECES = "gpt2", "llama"
"""The two kinds of vocabulary that are read: pairs over bytes, and pieces with scores (SentencePiece)."""
NORMAL, UNKNOWN, CONTROL, OWN, UNUSED = 1, 2, 3, 4, 5
"""Numbers of `token_type`; OWN tokens are found in a text before it is split, but are not control tokens."""
SPACE = "\u2581"

ENDS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<EOT>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "</s>",
)
"""Tokens at which llama.cpp ends an answer, whatever type a file gives them."""

DIGIT = r"\p{N}"
ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{REST}"
QWEN2 = rf"{ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{REST}"
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SEED = (
    rf"{ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}"
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", DIGIT)


@dataclass(frozen=True, slots=True)
class Rule:
    """How a text is split before pairs are merged: by each expression in turn, its matches apart."""

    splits: tuple[str, ...]
    whole: bool = False
    """Whether a part that is a token is left whole, whatever the merges give (`ignore_merges`)."""
    begins: bool = False
    """Whether a text begins with the token of the beginning, if the file does not say."""


RULES: Mapping[str, Rule] = {
    "smollm": Rule((DIGIT, GPT2)),  # the first of several equal rules is the one that is written
    **dict.fromkeys(
        ("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), Rule((DIGIT, GPT2))
    ),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4"), Rule((GPT2,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "kormo"), Rule((QWEN2,))),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        Rule((LLAMA3,), whole=True, begins=True),
    ),
    **dict.fromkeys(("smaug-bpe", "dbrx", "chatglm-bpe"), Rule((LLAMA3,))),
    "glm4": Rule((LLAMA3,), whole=True),
    "tekken": Rule((TEKKEN,), whole=True, begins=True),
    "seed-coder": Rule((SEED,)),
    "deepseek-coder": Rule(CODER),
}
"""The rules of llama.cpp's pre-tokenizers by name."""


def tokenizer_of(head: Head) -> dict[str, Any]:
    """The content of tokenizer.json. SettingError if the file's vocabulary is of no kind that is read."""
    tokens, kinds = head.need(f"{KEYS}tokens"), _kinds(head)
    if len(set(tokens)) < len(tokens):
        raise SettingError(f"{head.path} has a token twice: {AGAIN}")
    ids = {token: index for index, token in enumerate(tokens)}
    model = head.need(f"{KEYS}model")
    if model == BYTES:
        parts = _over_bytes(head, ids)
    elif model == PIECES:
        parts = _over_pieces(head, ids, kinds)
    else:
        raise SettingError(
            f"{head.path} has the vocabulary {model!r}, and {BYTES} and {PIECES} are read: {INSTEAD}"
        )
    added = [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kinds[index] != OWN,
        }
        for token, index in ids.items()
        if kinds[index] in (UNKNOWN, CONTROL, OWN)
    ]
    begin = _named(head, "bos") if _begins(head) else None
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "post_processor": None if begin is None else _beginning(begin, ids[begin]),
        **parts,
    }


def tokenizer_config_of(head: Head) -> dict[str, Any]:
    named = {f"{name}_token": _named(head, key) for name, key in TOKENS.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **{name: token for name, token in named.items() if token is not None},
    }


def ends_of(head: Head) -> list[int]:
    """The tokens that end an answer: those that the file names, and those at which llama.cpp ends one."""
    tokens = head.need(f"{KEYS}tokens")
    known = {token: index for index, token in enumerate(tokens) if token in ENDS}
    named = (head.fields.get(f"{KEYS}{key}_token_id") for key in ("eos", "eot", "eom"))
    found = {index for index in (*known.values(), *named) if index is not None and index < len(tokens)}
    if not found:
        raise SettingError(f"{head.path} names no token that ends an answer ({KEYS}eos_token_id): {INSTEAD}")
    return sorted(found)


TOKENS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""transformers' names of special tokens, and those of the file's keys."""


def _named(head: Head, key: str) -> str | None:
    index, tokens = head.fields.get(f"{KEYS}{key}_token_id"), head.need(f"{KEYS}tokens")
    return tokens[index] if index is not None and index < len(tokens) else None


def _kinds(head: Head) -> list[int]:
    tokens = head.need(f"{KEYS}tokens")
    kinds = head.fields.get(f"{KEYS}token_type") or [NORMAL] * len(tokens)
    if len(kinds) != len(tokens):
        counts = f"{len(tokens)} tokens, but {len(kinds)} types of tokens"
        raise SettingError(f"{head.path} has {counts}: {AGAIN}")
    return [
        CONTROL if token in ENDS and kind != CONTROL else kind
        for token, kind in zip(tokens, kinds, strict=True)
    ]


def _begins(head: Head) -> bool:
    by_itself = head.need(f"{KEYS}model") == PIECES or _rule(head).begins
    return bool(head.fields.get(f"{KEYS}add_bos_token", by_itself))


def _rule(head: Head) -> Rule:
    name = head.fields.get(f"{KEYS}pre", "")
    if name not in RULES:
        named = f"names the pre-tokenizer {name!r}" if name else "names no pre-tokenizer"
        raise SettingError(f"{head.path} {named}, which is not read: {INSTEAD}")
    return RULES[name]


def _over_bytes(head: Head, ids: Mapping[str, int]) -> dict[str, Any]:
    rule = _rule(head)
    merges = [merge.partition(" ")[::2] for merge in head.need(f"{KEYS}merges")]
    for left, right in merges:
        if not {left, right, left + right} <= ids.keys():
            what = f"{left!r} and {right!r}, which are not all tokens"
            raise SettingError(f"{head.path} merges {what}: {AGAIN}")
    split: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False}
        for each in rule.splits
    ]
    over_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*split, over_bytes]},
        "decoder": over_bytes,
        "model": _pairs(ids, merges, ignore_merges=rule.whole),
    }


def _over_pieces(head: Head, ids: Mapping[str, int], kinds: Sequence[int]) -> dict[str, Any]:
    """llama.cpp merges the pair whose union has the best score; as a list of merges, best first."""
    scores = head.need(f"{KEYS}scores")
    pieces = {token: index for token, index in ids.items() if kinds[index] in (NORMAL, UNUSED)}
    merges = sorted(_unions(pieces), key=lambda pair: -scores[ids[pair[0] + pair[1]]])
    spaced = head.fields.get(f"{KEYS}add_space_prefix", True)
    space = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    before = [{"type": "Prepend", "prepend": SPACE}] if spaced else []
    after = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if spaced else []
    decoders = [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *after]
    unknown = _named(head, "unknown") or next(
        (token for token, index in ids.items() if kinds[index] == UNKNOWN), None
    )
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*before, space]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _pairs(ids, merges, byte_fallback=True, fuse_unk=True, unk_token=unknown),
    }


def _unions(pieces: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Each way to split a piece into two pieces. Only lengths that some piece has are tried."""
    lengths = sorted(set(map(len, pieces)))
    for piece in pieces:
        for at in lengths[: bisect_left(lengths, len(piece))]:
            if (left := piece[:at]) in pieces and (right := piece[at:]) in pieces:
                yield left, right


def _pairs(ids: Mapping[str, int], merges: Sequence[Sequence[str]], **more: Any) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": dict(ids),
        "merges": [list(pair) for pair in merges],
        **more,
    }


def _beginning(token: str, index: int) -> dict[str, Any]:
    first, text = {"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    other = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, other],
        "special_tokens": {token: {"id": token, "ids": [index], "tokens": [token]}},
    }


def fields_of(folder: Path, vocabulary: int) -> dict[str, Any]:
    """The settings of a file that hold a folder's tokenizer and template, for weights with this `vocabulary`.

    SettingError if llama.cpp has no name for its way of splitting a text.
    """
    data = read_json(folder / "tokenizer.json")
    model, added = data["model"], {each["id"]: each for each in data["added_tokens"]}
    name = _name_of(folder, data)
    texts = {index: token for token, index in model["vocab"].items()}
    texts |= {index: each["content"] for index, each in added.items()}
    if max(texts) >= vocabulary:
        raise SettingError(f"{folder} has {max(texts) + 1} tokens, but weights of {vocabulary}")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    ids = {token: index for index, token in texts.items()}
    named = special_tokens(folder)
    fields = {
        f"{KEYS}model": BYTES,
        f"{KEYS}pre": name,
        f"{KEYS}tokens": [texts.get(index, f"[PAD{index}]") for index in range(vocabulary)],
        f"{KEYS}token_type": [_kind(index, texts, added) for index in range(vocabulary)],
        f"{KEYS}merges": merges,
        f"{KEYS}add_bos_token": _has_beginning(data),
    }
    for theirs, ours in TOKENS.items():
        if (index := ids.get(named.get(f"{theirs}_token", ""))) is not None:
            fields[f"{KEYS}{ours}_token_id"] = index
    template = folder / "chat_template.jinja"
    text = (
        template.read_text()
        if template.exists()
        else read_json(folder / "tokenizer_config.json").get("chat_template")
    )
    return fields | ({TEMPLATE: text} if isinstance(text, str) else {})


def _kind(index: int, texts: Mapping[int, str], added: Mapping[int, Mapping[str, Any]]) -> int:
    if index not in texts:
        return UNUSED
    if index not in added:
        return NORMAL
    return CONTROL if added[index]["special"] else OWN


def _has_beginning(data: Mapping[str, Any]) -> bool:
    processor = data.get("post_processor") or {}
    steps = processor.get("processors", [processor])
    return any(
        "SpecialToken" in step["single"][0] for step in steps if step.get("type") == "TemplateProcessing"
    )


def _name_of(folder: Path, data: Mapping[str, Any]) -> str:
    model, before = data["model"], data.get("pre_tokenizer") or {}
    steps = before.get("pretokenizers", [before])
    splits = tuple(split for step in steps for split in _splits(step))
    whole = bool(model.get("ignore_merges"))
    known = (name for name, rule in RULES.items() if (rule.splits, rule.whole) == (splits, whole))
    name = next(known, None)
    normal = (data.get("normalizer") or {}).get("type") in (None, "NFC")  # llama.cpp skips NFC
    if not normal or model["type"] != "BPE" or steps[-1].get("type") != "ByteLevel" or name is None:
        raise SettingError(
            f"llama.cpp's name for how {folder}/tokenizer.json splits a text is not known: {CONVERT}"
        )
    return name


def _splits(step: Mapping[str, Any]) -> tuple[str, ...]:
    """The expressions by which a step splits; a mark for a step that llama.cpp lacks."""
    kind = step.get("type")
    if kind == "ByteLevel" and not step.get("add_prefix_space"):
        return (GPT2,) if step.get("use_regex", True) else ()
    if kind == "Digits" and step.get("individual_digits"):
        return (DIGIT,)
    if (
        kind == "Split"
        and step["behavior"] == "Isolated"
        and not step["invert"]
        and "Regex" in step["pattern"]
    ):
        return (step["pattern"]["Regex"],)
    return (json.dumps(step),)
