"""Random rows that share their beginnings, and each row alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import PreTrainedModel

from afterwit.packing.attention import NAME
from afterwit.packing.pack import Pack, Path, inputs, pack

IDS = st.integers(0, 4)
"""Few different ids, so that rows share more than what was meant to be shared."""


@st.composite
def forests(draw: st.DrawFn, most: int = 6, longest: int = 10) -> list[Path]:
    """Sessions, branches at any depth, duplicates, prefixes of others, single wanted states."""
    rows: list[tuple[int, ...]] = []
    for _ in range(draw(st.integers(1, most))):
        kept: tuple[int, ...] = ()
        if rows and draw(st.integers(0, 4)):
            parent = draw(st.sampled_from(rows))
            kept = parent[: draw(st.sampled_from([len(parent), *range(len(parent) + 1)]))]
        new = draw(st.lists(IDS, min_size=0 if kept else 1, max_size=longest))
        rows.append((*kept, *new))
    return [Path(ids=ids, first=draw(st.sampled_from([len(ids) - 1, *range(len(ids))]))) for ids in rows]


def mask(packed: Pack) -> Tensor:
    """[L, L], true if the blocks let a token see another."""
    seen_LL = torch.zeros(len(packed.ids), len(packed.ids), dtype=torch.bool)
    for block in packed.blocks:
        shape = (block.end - block.begin, block.key_end - block.key_begin)
        part = torch.ones(shape, dtype=torch.bool)
        rows, keys = slice(block.begin, block.end), slice(block.key_begin, block.key_end)
        assert not seen_LL[rows, keys].any(), "seen twice"
        seen_LL[rows, keys] = part.tril() if block.causal else part
    return seen_LL


def one_by_one(model: PreTrainedModel, paths: Sequence[Path]) -> list[Tensor]:
    """Plain Hugging Face: each row alone."""
    model.set_attn_implementation("sdpa")
    return [model(input_ids=torch.tensor([path.ids])).logits[0, path.first :] for path in paths]


def together(model: PreTrainedModel, paths: Sequence[Path]) -> list[Tensor]:
    model.set_attn_implementation(NAME)
    packed = pack(paths)
    logits_LV = model(**inputs(packed, torch.device("cpu"))).logits[0]
    return [logits_LV[at] for at in packed.at]


def precise(model: PreTrainedModel) -> PreTrainedModel:
    """In float64 throughout: Hugging Face's norms, which work in fp32, are replaced by torch's."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                norm = nn.RMSNorm(len(child.weight), eps=child.variance_epsilon)
                norm.weight = child.weight
                setattr(parent, name, norm)
    return model.double()
