"""How much memory a card needs for an adapter, by model: counted from shapes, for docs/models.md.

    .venv/bin/python -m docs.cards

Counted as `afterwit plan` counts: the model in bfloat16 once in the learner and once in the engine; the
adapter (rank 16, every linear layer but the head) with gradient and two moments in fp32; a chunk of logits
next to the base's; the activations of one packed pass of 4,096 tokens with `learner.checkpointing`;
keys and values of 32,768 tokens. Not counted: what CUDA and the allocator hold, and the moment of a swap.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from afterwit.learning.settings import LearnerSettings
from afterwit.planning.memory import SPARE, ModelShape, learner_memory, server_memory

PAGE = Path(__file__).parent / "models.md"
BEGIN, END = "<!-- cards -->", "<!-- /cards -->"
LEARNER = LearnerSettings(dtype="bfloat16", checkpointing=True)
CONTEXT = 32_768
CARDS = (8, 12, 16, 24, 32, 48, 80, 96, 141)
"""GB of the cards that are sold."""


def qwen3(hidden: int, layers: int, heads: int, inner: int, *, tied: bool = False) -> dict[str, Any]:
    """A model's configuration, by the names of transformers."""
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": inner,
        "vocab_size": 151_936,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 40_960,
    }


CONFIGS = {
    "Qwen3-0.6B": qwen3(1024, 28, 16, 3072, tied=True),
    "Qwen3-1.7B": qwen3(2048, 28, 16, 6144, tied=True),
    "Qwen3-4B": qwen3(2560, 36, 32, 9728, tied=True),
    "Qwen3-8B": qwen3(4096, 36, 32, 12288),
    "Qwen3-14B": qwen3(5120, 40, 40, 17408),
    "Qwen3-32B": qwen3(5120, 64, 64, 25600),
}


def card(size: float) -> str:
    """The smallest card that holds `size` GB with room to spare."""
    return next((f"{gb} GB" for gb in CARDS if gb >= SPARE * size), "two cards")


def table() -> str:
    """The page's table, in Markdown."""
    lines = [
        "| model | weights | adapter | learner | engine | one card for both | a card each |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, config in CONFIGS.items():
        shape = ModelShape.of(config)
        learner = sum(learner_memory(shape, LEARNER, tokens=LEARNER.pass_tokens).values()) / 1e9
        engine = sum(server_memory(shape, LEARNER.dtype, tokens=CONTEXT).values()) / 1e9
        lines.append(
            f"| {name} | {shape.weights / 1e9:.1f} G | {shape.adapter(LEARNER.lora_rank) / 1e6:.0f} M | "
            f"{learner:.0f} GB | {engine:.0f} GB | {card(learner + engine)} | {card(max(learner, engine))} |"
        )
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with the table in its place."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
