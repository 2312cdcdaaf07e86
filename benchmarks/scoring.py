"""What does scoring cost beyond its matrix product?

Log-probs over a real vocabulary, weights and states random. The floor is one matrix product in chunks of
rows. Left out: the backbone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from afterwit.fused_head.head import score_states, sizes_on, two_stage_top_k
from afterwit.objective.terms import top_k
from benchmarks.asked import Asked, Scale, Shape, quick
from benchmarks.head_work import Work
from benchmarks.measure import Row, at_most, interleaved, ratios

TOP = 20
SCALES = Scale(shape=Shape(width=1024), tokens=1024), quick(width=1024)
PRODUCT = "one matrix product"


def rows(asked: Asked) -> Iterator[Row]:
    for scale in asked.scales(*SCALES):
        yield from _whole(asked, scale)
    yield _stages(asked, asked.scales(*SCALES)[0].shape.vocabulary)


def _whole(asked: Asked, scale: Scale) -> Iterator[Row]:
    """S1 and S2."""
    shape = scale.shape
    work = Work(scale.tokens, shape.width, shape.vocabulary, dtype=asked.dtype, device=asked.device)
    buffer_NV, tau_N = work.buffer(), torch.ones(scale.tokens, device=asked.device)
    ids_N1 = work.sample.ids_T[:, None]
    variants = {
        "floor": lambda: work.one_product(buffer_NV),
        "top": lambda: score_states(work.head, work.states_ND, tau_N, ids_N1, k=TOP),
        "gather": lambda: score_states(work.head, work.states_ND, tau_N, ids_N1),
    }
    timed, note = interleaved(variants, runs=asked.runs, clock=asked.seconds)
    for name, bound, variant, reads in (
        ("S1", 1.15, "top", f"top-{TOP}, gather, logsumexp"),
        ("S2", 1.08, "gather", "gather, logsumexp"),
    ):
        yield Row(
            id=f"{name}{scale.tag}",
            what=f"{reads} / {PRODUCT}, D {shape.width}",
            values=ratios(timed, variant),
            target=at_most(bound),
            floor=PRODUCT,
            note=note,
        )


def _stages(asked: Asked, vocabulary: int) -> Row:
    """S3."""
    generator = torch.Generator().manual_seed(0)
    logits_NV = torch.randn(sizes_on(torch.device(asked.device)).chunk, vocabulary, generator=generator).to(
        asked.device
    )
    theirs, mine = logits_NV.topk(TOP).indices, two_stage_top_k(logits_NV, TOP)[0]
    if not (torch.equal(theirs, mine) and torch.equal(top_k(logits_NV, TOP), mine)):
        raise SystemExit("the two stages found other ids than torch.topk")
    variants = {"floor": lambda: logits_NV.topk(TOP), "stages": lambda: two_stage_top_k(logits_NV, TOP)}
    timed, note = interleaved(variants, runs=1 if asked.quick else 5 * asked.runs, clock=asked.seconds)
    return Row(
        id="S3",
        what=f"exact top-{TOP} in two stages / torch.topk, identical ids",
        values=ratios(timed, "stages"),
        target=at_most(0.6),
        peer="torch.topk",
        note=note,
    )
