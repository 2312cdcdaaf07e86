"""The settings of the embedded engine."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from afterwit.ranges import at_least, below, one_of_its_choices


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """The engine's device and precision, and its limits on concurrent work."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    kind: Literal["embedded"] = "embedded"
    """The engine that samples. embedded: the model runs in this process."""
    device: str = "auto"
    """torch device: `cpu`, `cuda`, `cuda:1`, `mps`. auto: a GPU if there is one, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of weights, keys and values. auto: float32 on a CPU, bfloat16 on a GPU."""
    context_length: int = 0
    """Tokens of prompt and response together. 0: the model's own, at most 32768."""
    slots: int = 16
    """Responses sampled at once with live weights, and as many with base weights. Further requests wait."""
    prefill_chunk: int = 256
    """Prompt tokens read between two decode steps, at an empty context; fewer at a long one, where each token
    costs more. Higher reads prompts faster, lower streams more smoothly."""
    prefill_beside: int = 0
    """Prompt tokens per decode step that all prompts may cost, on average, while other responses decode.
    Lower protects them better, higher reads long prompts faster. 0: 32 on a CPU, 512 on a GPU."""
    prefix_cache_gib: float | None = None
    """GiB for the keys and values of earlier requests. A request that shares a prefix with an earlier or a
    running one reads only what is new. Prompts of running requests count and are never dropped; of the
    others the oldest go first. Unset: an eighth of the device's memory. 0: nothing is reused."""
    threads: int = 1
    """CPU threads of torch. On cores shared with other work, two were several times slower than one.
    0: torch's own choice."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        at_least(self, 1, "slots", "prefill_chunk")
        at_least(self, 0, "context_length", "prefill_beside", "threads", "prefix_cache_gib")
        below(self, inf, "prefix_cache_gib")
