"""How much memory the learner and an engine take, in bytes by purpose, counted from a model's shapes.

Not counted: what CUDA and the allocator hold, for which `SPARE` allows, and a learner's peak while it loads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from afterwit.engines.model_files import shapes_of, weights_of
from afterwit.errors import SettingError
from afterwit.gguf.family import config_of
from afterwit.gguf.file import contradictions, is_gguf, read_head
from afterwit.home.model import TAKES, downloaded, named_model
from afterwit.learning.settings import LearnerSettings

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A dense decoder with gated MLPs and grouped queries; `tied`: the head is the embedding."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    head_width: int
    tied: bool
    context: int
    """Tokens."""
    kept_per_token: int
    """Numbers of a token's keys and values."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The shape in a text model's configuration, by the names of transformers.

        ValueError if one is missing, or if the model has experts.
        """
        if any(config.get(name) for name in EXPERTS):
            raise ValueError("it has experts, and only dense models are counted")
        try:
            heads = config["num_attention_heads"]
            return cls(
                hidden=config["hidden_size"],
                layers=config["num_hidden_layers"],
                heads=heads,
                kv_heads=config.get("num_key_value_heads") or heads,
                inner=config["intermediate_size"],
                vocabulary=config["vocab_size"],
                head_width=config.get("head_dim") or config["hidden_size"] // heads,
                tied=bool(config.get("tie_word_embeddings")),
                context=config["max_position_embeddings"],
                kept_per_token=kept_per_token(config),
            )
        except KeyError as error:
            raise ValueError(f"it does not say {error.args[0]}") from error

    @property
    def linear(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of a layer's linear maps: queries, keys, values, output, gate, up, down."""
        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        return (
            (self.hidden, queries),
            (self.hidden, keys),
            (self.hidden, keys),
            (queries, self.hidden),
            (self.hidden, self.inner),
            (self.hidden, self.inner),
            (self.inner, self.hidden),
        )

    @property
    def layer(self) -> int:
        """Weights of a layer, but for norms and biases."""
        return sum(i * o for i, o in self.linear)

    @property
    def ends(self) -> int:
        """Weights of embedding and head."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def weights(self) -> int:
        """How many, but for norms and biases."""
        return self.layers * self.layer + self.ends

    def adapter(self, rank: int) -> int:
        """Weights of an adapter of this rank on every linear map but the head."""
        return self.layers * rank * sum(i + o for i, o in self.linear)


def kept_per_token(config: Mapping[str, Any]) -> int:
    """Numbers of a token's keys and values; `config` is the text model's, of any kind."""
    heads = config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    return int(2 * config["num_hidden_layers"] * (config.get("num_key_value_heads") or heads) * width)


WIDTHS = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number."""
ROWS = 1024
"""Rows of logits that the fused head holds at a time on a GPU."""
SPARE = 1.2
"""A factor for CUDA and the allocator: assumed, not measured."""
KEYS_VALUES = "keys and values"
"""The purpose, in `Memory`, of what an engine keeps of the tokens that it has read."""
SHARE = 4
"""The learner keeps a pass's activations in a quarter of the memory of a machine without a GPU."""
TOLERANCE = 0.02
"""The tolerated share by which the weights in the files may differ: norms and biases are not counted."""
Memory = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model by name. `folder` holds its configuration; its weights only if `here`."""

    name: str
    folder: Path
    shape: ModelShape
    dtype: str
    """Of its weights, by its configuration."""

    @property
    def here(self) -> bool:
        return bool(weights_of(self.folder))


def model_of(name: str | None, home: Path) -> Model:
    """The model of a folder or hub id; without a name, the home's.

    SettingError if there is none, or if its memory cannot be counted.
    """
    name, folder = named_model(name, home)
    if is_gguf(folder):
        with contradictions(folder):
            path, config = folder, config_of(read_head(folder)) | {"dtype": "bfloat16"}
    else:
        path = (folder if folder.exists() else downloaded(name, ["config.json"])) / "config.json"
        config = _config_in(path)
    uncounted = f"the memory of {name} cannot be counted"
    try:
        shape = ModelShape.of(config)
    except ValueError as error:
        raise SettingError(f"{uncounted} from {path}: {error}") from error
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in WIDTHS:
        raise SettingError(f"{uncounted}: its dtype is {dtype}, none of {[*WIDTHS]}")
    place = path if is_gguf(path) else path.parent
    shapes = shapes_of(place)
    if shape.tied:
        shapes.pop("lm_head.weight", None)
    held = sum(map(math.prod, shapes.values()))
    if held and abs(held - shape.weights) > TOLERANCE * held:  # another kind of model
        raise SettingError(
            f"{uncounted}: its files hold {held:,} weights, but a dense decoder with its config.json has "
            f"{shape.weights:,}"
        )
    return Model(name=name, folder=place, shape=shape, dtype=dtype)


def _config_in(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return {**config, **(config.get("text_config") or {})}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise SettingError(f"{path} cannot be read: {error}; {TAKES}") from error


def largest_pass(shape: ModelShape, settings: LearnerSettings) -> int:
    """Tokens of the largest pass: the longest turn, and with packing the other rows of its pass."""
    longest, others = min(settings.max_tokens, shape.context), settings.pass_tokens
    return longest + others if settings.packing == "auto" else max(longest, others)


def learner_memory(
    shape: ModelShape,
    settings: LearnerSettings,
    *,
    tokens: int,
    holds_base: bool = False,
    others: Sequence[ModelShape] = (),
) -> Memory:
    """Of one learner process at its largest, in a pass of `tokens`.

    `holds_base`: with full weights, teacher or reference is the base, a second model. `others` are the
    checkpoints that the settings name as teacher and reference.
    """
    width, shards = WIDTHS[settings.dtype], settings.shards
    precise = max(width, WIDTHS["float32"])
    trains = shape.adapter(settings.lora_rank) if settings.lora_rank else shape.weights
    frozen = width * sum(other.weights for other in others)
    if holds_base and not settings.lora_rank:
        frozen += width * _held(shape, shards)
    if settings.keeps_mean:
        frozen += precise * trains + (width * trains if width < precise and not settings.lora_rank else 0)
    head_gradient = precise * shape.vocabulary * shape.hidden if shards > 1 else 0  # whole in each process
    at_a_time = max(
        activations(shape, settings, tokens) + 2 * ROWS * shape.vocabulary * precise,
        precise * trains // shards,  # AdamW's own, during its step
    )
    return {
        "weights": _weights(shape, settings),
        "gradient and moments": 3 * precise * trains // shards + head_gradient,
        "teacher and reference": frozen,
        "a pass or a step": at_a_time,
    }


def _weights(shape: ModelShape, settings: LearnerSettings) -> int:
    """Bytes of the model, and of the master copy that the optimiser moves."""
    width = WIDTHS[settings.dtype]
    precise = max(width, WIDTHS["float32"])
    if settings.lora_rank:
        return width * shape.weights + precise * shape.adapter(settings.lora_rank)
    if settings.shards > 1:
        gathered = _held(shape, settings.shards) - shape.weights // settings.shards
        return precise * shape.weights // settings.shards + width * gathered
    return width * shape.weights + (precise * shape.weights if width < precise else 0)


def _held(shape: ModelShape, shards: int) -> int:
    """Weights that a process holds of a sharded model: its part, both ends, and two layers at a time."""
    if shards == 1:
        return shape.weights
    return shape.weights // shards + shape.ends + 2 * shape.layer


def activations(shape: ModelShape, settings: LearnerSettings, tokens: int) -> int:
    """Bytes that a pass of `tokens` keeps for the backward pass: an estimate.

    A layer keeps its states around norms and sums, and the inputs and outputs of its linear maps. Adapters on
    a rounded model read each map's input in the masters' precision. With checkpointing each layer's input
    stays, and one layer at a time is whole.
    """
    width = WIDTHS[settings.dtype]
    layer = width * (6 * shape.hidden + 2 * sum(outputs for _, outputs in shape.linear))
    if settings.lora_rank:
        layer += (max(width, WIDTHS["float32"]) - width) * sum(inputs for inputs, _ in shape.linear)
    recomputed = tokens * (width * shape.layers * shape.hidden + layer)
    if settings.checkpointing:
        return recomputed
    if settings.checkpointing is None and tokens > settings.pass_tokens:
        return max(recomputed, settings.pass_tokens * shape.layers * layer)
    return tokens * shape.layers * layer


def fitting(shape: ModelShape, settings: LearnerSettings, memory: int) -> LearnerSettings:
    """The settings with passes whose activations fit in a part of `memory` bytes, if they leave it open."""
    if settings.micro_batch_tokens is not None:
        return settings
    each = activations(shape, replace(settings, checkpointing=False), 1)
    tokens = min(settings.pass_tokens, max(1, memory // SHARE // each))
    return replace(settings, micro_batch_tokens=tokens)


def server_memory(
    shape: ModelShape, dtype: str, *, tokens: int, over: int = 1, adapters: int = 0, rank: int = 0
) -> Memory:
    """Bytes on each GPU of a server: the model `over` GPUs, one request of `tokens`, adapters."""
    width = WIDTHS[dtype]
    heads = -(-shape.kv_heads // over) / shape.kv_heads  # a GPU has at least one head of the keys
    return {
        "weights": width * shape.weights // over,
        "adapters": adapters * width * shape.adapter(rank) // over,
        KEYS_VALUES: int(width * tokens * shape.kept_per_token * heads),
    }


def embedded_memory(shape: ModelShape, dtype: str, *, cache: int, tokens: int, rank: int) -> Memory:
    """Of the embedded engine: base, live and staged weights, and `cache` bytes of keys and values, or those
    of one request of `tokens` if that is more."""
    width = WIDTHS[dtype]
    moving = shape.adapter(rank) if rank else shape.weights
    return {
        "weights": width * shape.weights,
        "live and staged weights": 2 * width * moving,
        KEYS_VALUES: max(cache, width * tokens * shape.kept_per_token),
    }
