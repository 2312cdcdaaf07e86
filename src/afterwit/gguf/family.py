"""The models that GGUF files and transformers both describe: settings, names of tensors, order of rows.

Each family's rules are those of llama.cpp's converters (`conversion/llama.py`, `qwen.py`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afterwit.errors import SettingError
from afterwit.gguf.file import AGAIN, CONVERT, INSTEAD, Head, library


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    name: str
    """`general.architecture`, and `model_type` of transformers."""
    turned: bool
    """Whether a head's rows of query and key are stored as llama.cpp rotates them: halves interleaved."""
    biases: bool = False
    """Whether transformers' configuration has switches for biases."""


FAMILIES = {
    family.name: family
    for family in (
        Family(name="llama", turned=True, biases=True),
        Family(name="qwen2", turned=False),
        Family(name="qwen3", turned=False, biases=True),
    )
}
SAME = {"mistral": "llama"}
"""Other model types of transformers, by the family whose files they become."""

SIZES = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
"""Settings of every file, and transformers' names for them."""
READ = {
    *SIZES,
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "vocab_size",
}
WITHOUT_EFFECT = {"tensor_data_layout", "rope.scaling.finetuned", "pooling_type"}
FREQUENCIES = "rope_freqs.weight"
"""The divisors of the rotation's frequencies, by which llama.cpp stretches the context of Llama 3.1."""
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
SCALINGS = {"linear", "yarn"}


def family_of(head: Head) -> Family:
    """The family of a file. SettingError if it is none that is read."""
    name = head.need("general.architecture")
    if (kind := head.fields.get("general.type", "model")) != "model":
        raise SettingError(f"{head.path} holds no model but {kind!r}: name the file of the model")
    if head.fields.get("split.count", 0) > 1:
        raise SettingError(f"{head.path} is one part of several: join them with `llama-gguf-split --merge`")
    if name not in FAMILIES:
        raise SettingError(
            f"{head.path} has the architecture {name!r}, and {', '.join(FAMILIES)} are read: {INSTEAD}"
        )
    return FAMILIES[name]


def config_of(head: Head) -> dict[str, Any]:
    """The file's settings as transformers' configuration. SettingError for one without a place there."""
    family = family_of(head)
    start = f"{family.name}."
    own = {key.removeprefix(start): value for key, value in head.fields.items() if key.startswith(start)}
    unread = sorted(key for key, value in own.items() if key not in READ | WITHOUT_EFFECT and value)
    if unread:
        raise SettingError(f"{head.path} sets {start}{unread[0]}, which is not read: {INSTEAD}")
    sizes = {theirs: head.need(start + key) for key, theirs in SIZES.items()}
    if (layers := sizes["num_hidden_layers"]) > len(head.tensors):
        raise SettingError(f"{head.path} has {layers} layers, but {len(head.tensors)} tensors: {AGAIN}")
    heads = sizes["num_attention_heads"]
    width = own.get("attention.key_length") or sizes["hidden_size"] // heads
    for key in ("attention.value_length", "rope.dimension_count"):
        if own.get(key, width) != width:
            only = f"{start}{key} to {own[key]}, and only {width} is read"
            raise SettingError(f"{head.path} sets {only}: {INSTEAD}")
    biased = {"attention_bias": "blk.0.attn_output.bias" in head.tensors} if family.biases else {}
    if family.name == "llama":
        biased["mlp_bias"] = "blk.0.ffn_down.bias" in head.tensors
    return {
        "model_type": family.name,
        **sizes,
        **biased,
        "num_key_value_heads": own.get("attention.head_count_kv", heads),
        "head_dim": width,
        "rms_norm_eps": short(head.need(f"{start}attention.layer_norm_rms_epsilon")),
        "rope_parameters": _rotation(head, own, width),
        "tie_word_embeddings": "output.weight" not in head.tensors,
        "vocab_size": len(head.need("tokenizer.ggml.tokens")),
    }


def _rotation(head: Head, own: Mapping[str, Any], width: int) -> dict[str, Any]:
    theta = short(own.get("rope.freq_base", 10_000.0))
    kind = own.get("rope.scaling.type", "none")
    if FREQUENCIES in head.tensors:
        return {"rope_type": "llama3", "rope_theta": theta, **_llama3(head, theta, width)}
    if kind == "none":
        return {"rope_type": "default", "rope_theta": theta}
    if kind not in SCALINGS:
        known = f"{kind!r}, and {sorted(SCALINGS)} are read"
        raise SettingError(f"{head.path} stretches its context by {known}: {INSTEAD}")
    found = {
        "rope_type": kind,
        "rope_theta": theta,
        "factor": short(head.need(f"{head.fields['general.architecture']}.rope.scaling.factor")),
    }
    if (before := own.get("rope.scaling.original_context_length")) is not None and kind == "yarn":
        found["original_max_position_embeddings"] = before
    return found


def _llama3(head: Head, theta: float, width: int) -> dict[str, float]:
    """The parameters that give the file's divisors. SettingError if none do."""
    tensor = head.tensors[FREQUENCIES]
    with head.path.open("rb") as file:
        file.seek(tensor.start)
        divisors = struct.unpack(f"<{tensor.shape[0]}f", file.read(4 * tensor.shape[0]))
    found = {"factor": short(max(divisors)), **LLAMA3}
    expected = divisors_of(found, theta, width)
    if len(expected) != len(divisors) or any(
        not math.isclose(one, other, rel_tol=1e-4) for one, other in zip(expected, divisors, strict=True)
    ):
        other = f"a {FREQUENCIES} that is not Llama 3's"
        raise SettingError(f"{head.path} stretches its context by {other}: {INSTEAD}")
    return found


def divisors_of(rope: Mapping[str, float], theta: float, width: int) -> list[float]:
    """The divisor of the frequency of each pair of dimensions, by the rule of Llama 3.1."""
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    before, found = rope["original_max_position_embeddings"], []
    for index in range(0, width, 2):
        turns = before / (2 * math.pi * theta ** (index / width))  # of the pair in the first context
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        found.append(1 / ((1 - share) / factor + share))
    return found


def short(value: float) -> float:
    """The shortest decimal of a number that the file holds in single precision: 1e-06, not 9.99999e-07."""
    return float(f"{value:.7g}")


def family_named(kind: str) -> Family:
    """The family of transformers' `model_type`. SettingError if it is none that is written."""
    if (family := FAMILIES.get(SAME.get(kind, kind))) is None:
        written = ", ".join([*FAMILIES, *SAME])
        raise SettingError(f"a model of type {kind!r} is not written as GGUF, {written} are: {CONVERT}")
    return family


def fields_of(config: Any) -> tuple[Family, dict[str, Any]]:
    """A transformers configuration as settings of a file, without the family's prefix; and the family.

    SettingError if llama.cpp would compute another model from them.
    """
    family = family_named(config.model_type)
    if getattr(config, "use_sliding_window", config.model_type == "mistral") and config.sliding_window:
        raise SettingError("its attention has a sliding window, with which it is not written as GGUF")
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    fields = {
        **{key: getattr(config, theirs) for key, theirs in SIZES.items()},
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.dimension_count": width,
        "rope.freq_base": float(rope["rope_theta"]),
        "vocab_size": config.vocab_size,
    }
    if (kind := rope["rope_type"]) in SCALINGS:
        fields |= {"rope.scaling.type": kind, "rope.scaling.factor": float(rope["factor"])}
        if "original_max_position_embeddings" in rope:
            fields["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    elif kind not in ("default", "llama3"):
        raise SettingError(f"its context is stretched by {kind!r}, with which it is not written as GGUF")
    return family, fields


class Names:
    def __init__(self, family: Family, layers: int) -> None:
        gguf = library()
        number = next(each for each, name in gguf.MODEL_ARCH_NAMES.items() if name == family.name)
        self._map = gguf.get_tensor_name_map(number, layers)

    def of(self, name: str) -> str:
        """SettingError if llama.cpp has no such tensor."""
        found: str | None = self._map.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise SettingError(f"llama.cpp has no place for {name}")
        return found


def heads_of(family: Family, name: str, config: Any) -> int | None:
    """How many heads have rows in this tensor of transformers, if its rows are turned; else None."""
    if not family.turned:
        return None
    layer = name.rpartition(".")[0] if name.endswith((".weight", ".bias")) else name
    if layer.endswith("q_proj"):
        return int(config.num_attention_heads)
    return int(config.num_key_value_heads) if layer.endswith("k_proj") else None


def turned(rows: Any, heads: int) -> Any:
    """Rows as llama.cpp orders them, from transformers' order: of each head the halves interleaved. Of torch
    or NumPy."""
    return _swapped(rows, (heads, 2, rows.shape[0] // heads // 2))


def turned_back(rows: Any, heads: int) -> Any:
    """The inverse of `turned`."""
    return _swapped(rows, (heads, rows.shape[0] // heads // 2, 2))


def _swapped(rows: Any, axes: Sequence[int]) -> Any:
    return rows.reshape(*axes, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
