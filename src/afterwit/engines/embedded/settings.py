"""The settings of the embedded engine."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from afterwit.ranges import at_least, below, one_of_its_choices


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """The model runs in this process."""

    kind: Literal["embedded"] = "embedded"
    """The model runs in this process."""
    device: str = "auto"
    """torch device: `cpu`, `cuda`, `cuda:1`, `mps`. auto: a GPU if there is one."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of weights, keys and values. auto: float32 on a CPU, bfloat16 on a GPU."""
    context_length: int = 0
    """Tokens of prompt and response together. 0: the model's own, at most 32768."""
    slots: int = 16
    """Responses sampled at once with live weights, and as many with base weights; more wait."""
    prefill_chunk: int = 256
    """Prompt tokens between two decode steps: more read prompts faster, fewer stream more evenly."""
    prefill_beside: int = 0
    """Mean prompt tokens per decode step while other responses are sampled: more read prompts faster,
    fewer delay the others less. 0: 32 on a CPU, 512 on a GPU."""
    prefix_cache_gib: float | None = None
    """GiB of keys and values kept for requests that begin like earlier ones. Unset: an eighth of the
    device's memory. 0: no reuse."""
    threads: int = 1
    """CPU threads of torch; 0: torch's choice."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        at_least(self, 1, "slots", "prefill_chunk")
        at_least(self, 0, "context_length", "prefill_beside", "threads", "prefix_cache_gib")
        below(self, inf, "prefix_cache_gib")
