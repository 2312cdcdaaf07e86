"""Which hint teaches at each position (overlap-guided hint selection, OpenClaw-RL, arXiv:2603.10165).

Candidates come sorted by length, so the first is the shortest; every tie goes to the first.
"""

from __future__ import annotations

import struct
from hashlib import sha256

import torch
from torch import Tensor

from afterwit.objective.sample import Sample
from afterwit.objective.settings import HintSelection


def shared(ids: Tensor, among: Tensor) -> Tensor:
    """Which of the ids [..., K] are in the same row of the others; by sorting, for K times K may be large."""
    ordered = among.sort(dim=-1).values
    place = torch.searchsorted(ordered, ids.contiguous()).clamp(max=among.shape[-1] - 1)
    return ordered.gather(-1, place) == ids


def overlap(student_TK: Tensor, native_HTK: Tensor) -> Tensor:
    """O [H, T]: how many of the student's top-K ids are among the teacher's."""
    return shared(student_TK.expand_as(native_HTK), native_HTK).sum(dim=-1)


def drawn(ids: list[int], hints: int) -> int:
    """One of the hints, each as likely, the same for the same ids.

    SHA-256 of the ids as little-endian 64-bit integers; its first eight bytes, big-endian, modulo `hints`.
    """
    digest = sha256(struct.pack(f"<{len(ids)}q", *ids)).digest()
    return int.from_bytes(digest[:8], "big") % hints


def fixed_choice(sample: Sample, rule: HintSelection) -> int | None:
    """The hint that `rule` takes without looking at a teacher, or `None` if it has to look."""
    if rule == "shortest" or sample.hints == 1:
        return 0
    if rule == "longest":
        lengths = sample.hint_lengths or range(sample.hints)
        return max(range(sample.hints), key=lengths.__getitem__)
    return drawn(sample.ids_T.tolist(), sample.hints) if rule == "random" else None


def choose(overlap_HT: Tensor, sample: Sample, rule: HintSelection) -> Tensor:
    """h* [T]: the hint that teaches at each position. Masked tokens have no say in a sequence's choice."""
    tokens = overlap_HT.shape[-1]
    fixed = fixed_choice(sample, rule)
    if fixed is not None:
        return torch.full((tokens,), fixed, device=overlap_HT.device)
    if rule == "token_optimal":
        return overlap_HT.argmax(dim=0)
    return (overlap_HT * sample.mask_T).sum(dim=1).argmax().expand(tokens)


def pick(values_HT: Tensor, hint_T: Tensor) -> Tensor:
    """The chosen hint's values: [H, T, ...] and [T] give [T, ...]."""
    return values_HT[hint_T, torch.arange(len(hint_T), device=hint_T.device)]
