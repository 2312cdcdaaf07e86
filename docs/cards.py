"""How much memory a card needs for an adapter, by model: counted from shapes, for docs/choosing.md.

    .venv/bin/python -m docs.cards

Counted: the model in bfloat16 once in the learner and once in the engine; the adapter (rank 16, every linear
layer but the head) with gradient and two moments in fp32; a chunk of logits with the base's beside it; the
activations of one packed pass of 4,096 tokens with `learner.checkpointing`; keys and values of 32,768 tokens.
Not counted: what CUDA and the allocator hold, and the moment of a swap.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent / "choosing.md"
BEGIN, END = "<!-- cards -->", "<!-- /cards -->"
RANK, TOKENS, CONTEXT, ROWS = 16, 4096, 32_768, 1024
CARDS = (8, 12, 16, 24, 32, 48, 80, 96, 141)
"""GB of the cards that are sold."""
SPARE = 1.2
"""What CUDA and the allocator take beside what is counted: assumed, not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A dense decoder with gated MLPs and grouped queries; `tied`: the head is the embedding."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int = 151_936
    head_width: int = 128
    tied: bool = False

    @property
    def linear(self) -> list[tuple[int, int]]:
        """Inputs and outputs of a layer's linear maps."""
        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        return [
            (self.hidden, queries),
            (self.hidden, keys),
            (self.hidden, keys),
            (queries, self.hidden),
            (self.hidden, self.inner),
            (self.hidden, self.inner),
            (self.inner, self.hidden),
        ]

    @property
    def weights(self) -> int:
        """How many, but for norms."""
        blocks = self.layers * sum(i * o for i, o in self.linear)
        return blocks + self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def adapter(self) -> int:
        """How many weights of an adapter train."""
        return self.layers * RANK * sum(i + o for i, o in self.linear)

    @property
    def learner(self) -> float:
        """GB."""
        logits = 2 * ROWS * self.vocabulary * 4
        kept = TOKENS * self.layers * self.hidden * 2
        one_layer = TOKENS * 2 * (6 * self.hidden + 2 * sum(o for _, o in self.linear))
        return (2 * self.weights + 16 * self.adapter + logits + kept + one_layer) / 1e9

    @property
    def engine(self) -> float:
        """GB, with keys and values."""
        cache = CONTEXT * self.layers * 2 * self.kv_heads * self.head_width * 2
        return (2 * self.weights + cache) / 1e9


SHAPES = (
    Shape(name="Qwen3-0.6B", hidden=1024, layers=28, heads=16, kv_heads=8, inner=3072, tied=True),
    Shape(name="Qwen3-1.7B", hidden=2048, layers=28, heads=16, kv_heads=8, inner=6144, tied=True),
    Shape(name="Qwen3-4B", hidden=2560, layers=36, heads=32, kv_heads=8, inner=9728, tied=True),
    Shape(name="Qwen3-8B", hidden=4096, layers=36, heads=32, kv_heads=8, inner=12288),
    Shape(name="Qwen3-14B", hidden=5120, layers=40, heads=40, kv_heads=8, inner=17408),
    Shape(name="Qwen3-32B", hidden=5120, layers=64, heads=64, kv_heads=8, inner=25600),
)


def card(size: float) -> str:
    """The smallest card that holds so many GB and what runs beside."""
    return next((f"{gb} GB" for gb in CARDS if gb >= SPARE * size), "two cards")


def table() -> str:
    """The page's table, in Markdown."""
    lines = [
        "| model | weights | adapter | learner | engine | one card for both | a card each |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for shape in SHAPES:
        both, larger = shape.learner + shape.engine, max(shape.learner, shape.engine)
        lines.append(
            f"| {shape.name} | {shape.weights / 1e9:.1f} G | {shape.adapter / 1e6:.0f} M | "
            f"{shape.learner:.0f} GB | {shape.engine:.0f} GB | {card(both)} | {card(larger)} |"
        )
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with the table in its place."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
