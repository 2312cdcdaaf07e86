"""What does attention over a tree cost block by block, against a dense mask, and does it grow as T^2?

Forward and backward of one layer over a packed session with its hints. The floor is causal attention over as
many tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn.functional import scaled_dot_product_attention

from afterwit.packing.attention import attend, kernel_for
from afterwit.packing.pack import Pack, Path, pack
from benchmarks.asked import Asked, Scale, Shape, allocations
from benchmarks.measure import Row, Variants, at_most, interleaved, ratios
from benchmarks.packing import SESSION, VOCABULARY

SHAPE = Shape(width=512, head_dim=64)
SCALES = Scale(shape=SHAPE, tokens=7358), Scale(shape=SHAPE, tokens=1800)


def rows(asked: Asked) -> Iterator[Row]:
    """P5."""
    for scale in asked.scales(*SCALES):
        packed = _tree(scale)
        ways, tokens = _ways(asked, scale, packed), len(packed.ids)
        timed, note = interleaved(ways, runs=asked.runs, clock=asked.seconds)
        yield Row(
            id=f"P5{scale.tag}",
            what=f"attention over a tree of {tokens} tokens / under a dense mask",
            values=ratios(timed, "blocks", "dense"),
            target=at_most(0.45),
            peer="SDPA with a mask",
            note=note,
        )
        yield Row(
            id=f"p5{scale.tag}",
            what="the same / causal attention over as many tokens",
            values=ratios(timed, "blocks"),
            floor="causal attention",
        )
        if asked.device == "cpu":
            yield Row(
                id=f"P5{scale.tag}",
                what="its largest allocation, bytes / T^2",
                values=(max(allocations(ways["blocks"])) / tokens**2,),
                target=at_most(1.0),
            )


def _tree(scale: Scale) -> Pack:
    students, hinted = SESSION.times(scale.tokens / SESSION.tokens_with_hints).rows(VOCABULARY)
    given = students + [row for each in hinted for row in each]
    return pack([Path(ids=row.inputs, first=row.first) for row in given])


def _ways(asked: Asked, scale: Scale, packed: Pack) -> Variants:
    shape, tokens = scale.shape, len(packed.ids)
    groups, factor = shape.heads // shape.kv_heads, shape.head_dim**-0.5
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(1, heads, tokens, shape.head_dim).to(asked.device, asked.dtype).requires_grad_()
        for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
    )
    seen_LL = torch.zeros(tokens, tokens, dtype=torch.bool, device=asked.device)
    for block in packed.blocks:
        part = seen_LL[block.begin : block.end, block.key_begin : block.key_end]
        part.copy_(torch.ones_like(part).tril() if block.causal else torch.ones_like(part))

    def whole(**how: object) -> None:
        keys, values = (each.repeat_interleave(groups, dim=1) for each in (key, value))
        scaled_dot_product_attention(query, keys, values, scale=factor, **how).sum().backward()

    def blocks() -> None:
        attend(query, key, value, packed.blocks, factor, kernel_for(query)).sum().backward()

    return {
        "floor": lambda: whole(is_causal=True),
        "blocks": blocks,
        "dense": lambda: whole(attn_mask=seen_LL),
    }
