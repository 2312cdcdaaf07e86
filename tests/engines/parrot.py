"""A model whose weights say their version: whatever it reads, its next token is that one number."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from afterwit.core.turn import Basis
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Facts

VOCABULARY = 64
POISON = 63
"""Reading this token raises, as a device out of memory does."""
NAN = 62
"""After this token the logits are not numbers."""


class Parrot(nn.Module):
    """Says `word`; keeps no keys. `gate`, where given, must be open for it to step."""

    def __init__(self, word: int, gate: threading.Event | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.word = word
        self.gate = gate
        self.largest_batch = 0

    def forward(self, *, input_ids: Tensor, logits_to_keep: int, **_: Any) -> SimpleNamespace:
        if self.gate:
            assert self.gate.wait(timeout=30), "the test never opened the gate"
        if (input_ids == POISON).any():
            raise RuntimeError("out of memory")
        self.largest_batch = max(self.largest_batch, len(input_ids))
        logits_BQV = torch.zeros(*input_ids.shape, VOCABULARY)
        logits_BQV[..., self.word] = 50.0
        logits_BQV[input_ids == NAN] = torch.nan
        return SimpleNamespace(logits=logits_BQV[:, -logits_to_keep:])


def parrot_engine(module: nn.Module | None = None, **settings: Any) -> EmbeddedEngine:
    """An engine of parrots: the version staged from folder `.../n` says n. No token ends a turn."""
    facts = Facts(
        name="embedded",
        model="parrot",
        context_length=4096,
        vocabulary=VOCABULARY,
        end_ids=frozenset(),
        basis=Basis.PROCESSED,
        dtype="float32",
        fingerprint="0" * 32,
    )
    base = module or Parrot(0)
    return EmbeddedEngine(
        base, facts, EmbeddedSettings(**settings), load=lambda folder: Parrot(int(Path(folder).name)), seed=0
    )
