"""What do TRL's and Liger-Kernel's passes over the head cost, next to ours on the same states?

TRL's are those of its GRPO, distillation and SDPO trainers, Liger-Kernel's its chunked losses (measured on
CUDA only, where they are compiled). Ours include phase one: what the old policy and the teacher say. Only the
RL losses are the same function, and are first shown to have the same gradient; of the distillations ours
reads 50 ids and the tail, TRL's trainer the whole vocabulary, its SDPO 100 ids off whole logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec

import torch

from afterwit.fused_head.head import score_states
from afterwit.objective.settings import ObjectiveSettings
from benchmarks import peer_ways as ways
from benchmarks import scoring
from benchmarks.asked import Asked, Scale
from benchmarks.head_work import Work
from benchmarks.loss import SCALES
from benchmarks.measure import Row, at_most, interleaved, quotients, ratios

RL = ObjectiveSettings(objective="rl", w_rl=1.0, beta=0.0)
DISTILL = ObjectiveSettings(objective="topk_distill", beta=0.0)

Peers = Mapping[str, Callable[[Work], object]]


def rows(asked: Asked) -> Iterator[Row]:
    if find_spec("trl") is None:
        raise SystemExit("TRL is missing: pip install 'afterwit[bench]'")
    for scale in asked.scales(*SCALES):
        yield from _learning(asked, scale)
    for scale in asked.scales(*scoring.SCALES):
        yield from _scoring(asked, scale)


def _learning(asked: Asked, scale: Scale) -> Iterator[Row]:
    liger = asked.device == "cuda" and find_spec("liger_kernel") is not None
    work = _work(asked, scale, RL)
    if asked.dtype is torch.float32:
        yield _same(work, scale)
    peers: Peers = {"TRL's GRPO": ways.grpo} | ({"Liger's GRPO": ways.liger_grpo} if liger else {})
    yield from _compared(asked, scale, work, "RL", Work.both_phases, peers, work.head.weight_VD.nbytes)
    work = _work(asked, scale, DISTILL)
    peers = {"TRL's distillation": ways.divergence, "TRL's SDPO": ways.sdpo}
    peers |= {"Liger's JSD": ways.liger_jsd} if liger else {}
    yield from _compared(asked, scale, work, "OPD", Work.both_phases, peers, work.head.weight_VD.nbytes)


def _scoring(asked: Asked, scale: Scale) -> Iterator[Row]:
    work = _work(asked, scale, RL)
    tau_N, ids_N1 = torch.ones(scale.tokens, device=asked.device), work.sample.ids_T[:, None]
    yield from _compared(
        asked,
        scale,
        work,
        "scoring",
        lambda work: score_states(work.head, work.states_ND, tau_N, ids_N1),
        {"TRL's log-probs": ways.score},
    )
    yield from _compared(
        asked,
        scale,
        work,
        f"scoring with top-{scoring.TOP}",
        lambda work: score_states(work.head, work.states_ND, tau_N, ids_N1, k=scoring.TOP),
        {"TRL's, off whole logits": lambda work: ways.top(work, scoring.TOP)},
    )


def _work(asked: Asked, scale: Scale, settings: ObjectiveSettings) -> Work:
    shape = scale.shape
    return Work(
        scale.tokens,
        shape.width,
        shape.vocabulary,
        dtype=asked.dtype,
        device=asked.device,
        settings=settings,
    )


def _same(work: Work, scale: Scale) -> Row:
    """The gradients of both RL losses."""
    work.gradient_VD.zero_()
    mine = (work.both_phases().grad_states_ND, work.gradient_VD)
    worst = max(
        float((one - other).abs().max() / other.abs().max())
        for one, other in zip(mine, ways.grpo(work), strict=True)
    )
    return Row(
        id=f"t0{scale.tag}",
        what="RL: our gradients against TRL's GRPO, error",
        values=(worst,),
        target=at_most(5e-6),
        peer="TRL's GRPO",
    )


def _compared(
    asked: Asked,
    scale: Scale,
    work: Work,
    what: str,
    ours: Callable[[Work], object],
    peers: Peers,
    own: int = 0,
) -> Iterator[Row]:
    """Time and memory of each peer over ours; `own` is the dW that it returns, which is taken off."""
    variants = {"floor": lambda: ours(work)} | {
        name: lambda way=way: way(work) for name, way in peers.items()
    }
    timed, note = interleaved(variants, runs=asked.runs, clock=asked.seconds)
    bytes_of_ours = _bytes(asked, variants["floor"])
    for name in peers:
        bytes_of_theirs = tuple(each - own for each in _bytes(asked, variants[name]))
        figures = {"time": ratios(timed, name), "memory": quotients(bytes_of_theirs, bytes_of_ours)}
        for kind, values in figures.items():
            yield Row(
                id=f"t1{scale.tag}",
                what=f"{what}: {kind} of {name} / ours",
                values=values,
                peer=name,
                note=note,
            )


def _bytes(asked: Asked, way: Callable[[], object]) -> tuple[int, ...]:
    """None: more than there is."""
    try:
        return (asked.peak_bytes(way),)
    except MemoryError:
        return ()
