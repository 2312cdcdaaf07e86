"""What does the loss with its gradient cost beyond its matrix products, in time and in memory?

RL and top-K OPD over a real vocabulary, weights and states random. The floor is the loss's three matrix
products in chunks of rows; the plain way is autograd through whole logits. Left out: the backbone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from afterwit.fused_head.head import Head, sizes_on
from benchmarks.asked import Asked, Scale, Shape, quick
from benchmarks.head_work import Work
from benchmarks.measure import Row, at_most, interleaved, quotients, ratios

SCALES = Scale(shape=Shape(width=512), tokens=1024), quick(width=512)
WIDE = Scale(shape=Shape(width=2560), tokens=512), quick(width=2560, tokens=256)
PRODUCTS = "its 3 matrix products"


def rows(asked: Asked) -> Iterator[Row]:
    for scale in asked.scales(*SCALES):
        yield from _time(asked, scale)
        yield from _memory(asked, scale)
    if asked.shape is None:
        yield _wide_time(asked, asked.scales(*WIDE)[0])
        yield from _errors(asked.scales(*SCALES)[0].shape.vocabulary)


def _work(asked: Asked, scale: Scale) -> Work:
    shape = scale.shape
    return Work(scale.tokens, shape.width, shape.vocabulary, dtype=asked.dtype, device=asked.device)


def _time(asked: Asked, scale: Scale) -> Iterator[Row]:
    """L1 and L4."""
    work = _work(asked, scale)
    buffer_NV, whole, quarter = work.buffer(), work.rows(), work.rows(every=4)
    variants: dict[str, Callable[[], object]] = {"floor": lambda: work.three_products(buffer_NV)}
    variants |= {
        "fused": lambda: work.fused(whole),
        "quarter": lambda: work.fused(quarter),
        "plain": work.plain,
    }
    timed, note = interleaved(variants, runs=asked.runs, clock=asked.seconds)
    what, width = f"loss and gradient / {PRODUCTS}, D", scale.shape.width
    yield Row(
        id=f"L1{scale.tag}",
        what=f"{what} {width}",
        values=ratios(timed, "fused"),
        target=at_most(1.20),
        floor=PRODUCTS,
        note=note,
    )
    yield Row(
        id=f"l1{scale.tag}",
        what="the plain way's time / ours",
        values=ratios(timed, "plain", "fused"),
        peer="autograd",
    )
    yield Row(
        id=f"L4{scale.tag}",
        what="with a quarter of the rows live / with all",
        values=ratios(timed, "quarter", "fused"),
        target=at_most(0.32),
        floor="0.25",
        note=note,
    )


def _wide_time(asked: Asked, scale: Scale) -> Row:
    """L1 at the width of a 4B model."""
    work = _work(asked, scale)
    buffer_NV, whole = work.buffer(), work.rows()
    variants = {"floor": lambda: work.three_products(buffer_NV), "fused": lambda: work.fused(whole)}
    timed, note = interleaved(variants, runs=min(3, asked.runs), clock=asked.seconds)
    return Row(
        id="L1w",
        what=f"loss and gradient / {PRODUCTS}, D {scale.shape.width}",
        values=ratios(timed, "fused"),
        target=at_most(1.12),
        floor=PRODUCTS,
        note=note,
    )


def _memory(asked: Asked, scale: Scale) -> Iterator[Row]:
    """L2. The plain way makes a dW of its own, which is taken off what it needs."""
    own = sizes_on(torch.device(asked.device)).chunk * scale.shape.vocabulary * 4
    fused, plain = _bytes(asked, scale, "fused"), _bytes(asked, scale, "plain")
    twice = _bytes(asked, replace(scale, tokens=2 * scale.tokens), "fused")
    yield Row(
        id=f"L2{scale.tag}",
        what="memory beyond dW / a chunk of logits",
        values=tuple(each / own for each in fused),
        target=at_most(1.2),
        floor="a chunk of logits",
        note=f"{_mib(fused)}, the plain way {_mib(plain)}",
    )
    yield Row(
        id=f"L2{scale.tag}",
        what="memory beyond dW / the plain way's",
        values=quotients(fused, plain),
        target=at_most(0.12) if plain else None,
        peer="autograd",
    )
    yield Row(
        id=f"L2{scale.tag}",
        what="memory at twice the rows / at once",
        values=quotients(twice, fused),
        target=at_most(1.05),
    )


def _bytes(asked: Asked, scale: Scale, way: str) -> tuple[int, ...]:
    """Beyond dW; none: more than there is."""
    work = _work(asked, scale)
    whole = work.rows()
    try:
        peak = asked.peak_bytes(work.plain if way == "plain" else lambda: work.fused(whole))
    except MemoryError:
        return ()
    return (peak - (work.head.weight_VD.nbytes if way == "plain" else 0),)


def _mib(peak: tuple[int, ...]) -> str:
    return f"{peak[0] / 2**20:.0f} MiB" if peak else "does not fit"


def _errors(vocabulary: int, tokens: int = 64) -> Iterator[Row]:
    """L3, relative to the largest gradient of its kind, against autograd in fp64."""
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 5e-6)):
        work = Work(tokens, 64, vocabulary, dtype=dtype)
        learned = work.fused(work.rows())
        exact = Work(tokens, 64, vocabulary, dtype=torch.float64)
        exact.head = Head(weight_VD=work.head.weight_VD.double())
        exact.states_ND, exact.target = work.states_ND.double(), work.target
        pairs = zip((learned.grad_states_ND, work.gradient_VD), exact.plain(), ("states", "dW"), strict=True)
        for mine, truth, kind in pairs:
            apart_by = float((mine.double() - truth).abs().max() / truth.abs().max())
            precision = str(dtype).removeprefix("torch.")
            yield Row(
                id="L3",
                what=f"gradient of {kind} in {precision}, error",
                values=(apart_by,),
                target=at_most(bound),
                floor="float64",
            )
