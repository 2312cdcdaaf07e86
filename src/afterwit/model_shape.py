"""The size of a model by its configuration: its weights, an adapter's, its keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

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

        ValueError if it lacks one of them, or if the model has experts.
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
