"""A model whose weights say their version: whatever it reads, its next token is that one number."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from afterwit.engines.embedded.cache import PrefixCache
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.runner import ModelRunner, PrefillBudget
from afterwit.engines.embedded.sequence import Deliver, ResponseSequence
from afterwit.engines.port import Facts, Generate
from afterwit.turn import Sampling

VOCABULARY = 64
POISON = 63
"""Reading this token raises, as a device out of memory does."""
LOST = 61
"""Reading this token loses the GPU."""
NAN = 62
"""After this token the logits are not numbers."""
BUDGET = PrefillBudget(chunk=256, per_step=32)
CONTEXT = 32768
CACHE_BYTES = 2**20
FACTS = Facts(
    name="embedded",
    model="parrot",
    context_length=CONTEXT,
    vocabulary=VOCABULARY,
    end_ids=frozenset(),
    dtype="float32",
    fingerprint="0" * 32,
)


class Parrot(nn.Module):
    """Always predicts `word`; keeps no keys. `gate`, if given, must be open for it to step."""

    def __init__(self, word: int, gate: threading.Event | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.word = word
        self.wait = (
            (lambda: gate.wait(timeout=30)) if gate else (lambda: True)
        )  # a copy waits at the same gate
        self.forwards: list[tuple[int, int]] = []
        """Rows and new positions of each forward."""

    def forward(self, *, input_ids: Tensor, logits_to_keep: int | Tensor, **_: Any) -> SimpleNamespace:
        assert self.wait(), "the test never opened the gate"
        if (input_ids == POISON).any():
            raise RuntimeError("out of memory")
        if (input_ids == LOST).any():
            raise torch.AcceleratorError("CUDA error: unspecified launch failure")
        self.forwards.append((input_ids.shape[0], input_ids.shape[1]))
        logits_BQV = torch.zeros(*input_ids.shape, VOCABULARY)
        logits_BQV[..., self.word] = 50.0
        logits_BQV[input_ids == NAN] = torch.nan
        at = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        return SimpleNamespace(logits=logits_BQV[:, at])


def parrot_engine(
    module: nn.Module | None = None, *, slots: int = 16, budget: PrefillBudget = BUDGET
) -> EmbeddedEngine:
    """An engine of parrots: the version staged from folder `.../n` samples n. No token ends a turn."""
    return EmbeddedEngine(
        module or Parrot(0),
        FACTS,
        load=lambda folder: Parrot(int(Path(folder).name)),
        load_own=lambda folder, rows: None,
        slots=slots,
        budget=budget,
        cache_bytes=CACHE_BYTES,
        seed=0,
    )


def runner_of(module: nn.Module, *, budget: PrefillBudget = BUDGET) -> ModelRunner:
    """A model runner that the test steps itself."""
    kept = PrefixCache(CACHE_BYTES)
    return ModelRunner(module, slots=8, reserve=2, context_length=CONTEXT, budget=budget, cache=kept)


def sequence_of(
    prompt: Sequence[int],
    deliver: Deliver = lambda event: None,
    *,
    background: bool = False,
    **sampling: Any,
) -> ResponseSequence:
    """A request for a runner."""
    request = Generate(
        prompt_ids=tuple(prompt),
        sampling=Sampling(**({"max_tokens": 5} | sampling)),
        background=background,
    )
    return ResponseSequence(request, facts=FACTS, scripted=(), seed=0, deliver=deliver)
