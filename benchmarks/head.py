"""What do scoring and the loss cost beside their matrix products, in time and in memory?

The vocabulary is a real one (151,936), weights and states are random, on one torch thread. The floor of the
loss is its three matrix products in chunks of 256 rows, that of scoring is one. The objective is the default
one (RL and top-K OPD) without the anchor. Left out: GPUs, half precision, the backbone.
`python -m benchmarks.head [--rows N] [--runs N] [--only L1,S3] [--out FILE]`; L1w is L1 at D 2560, in 4 GB.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from afterwit.head.flatten import turn_rows
from afterwit.head.head import Gradients, Head
from afterwit.head.learn import Learned, learn
from afterwit.head.pupil import Pupil
from afterwit.head.rows import Rows
from afterwit.head.score import score
from afterwit.head.sizes import CPU
from afterwit.head.targets import targets
from afterwit.head.top import two_stage
from afterwit.objective.hybrid import share
from afterwit.objective.logprobs import top_k
from afterwit.objective.sample import Sample, denominators
from afterwit.objective.settings import ObjectiveSettings
from benchmarks.measure import Row, interleaved, ratios, report

VOCABULARY = 151_936
CHUNK = CPU.chunk
TOP = 20
SETTINGS = ObjectiveSettings(beta=0.0)
GROUPS = ("L1", "L1w", "L2", "L3", "L4", "S1", "S3")


class Work:
    """One response with a reward and a hint, and the head it is learned through."""

    def __init__(self, tokens: int, width: int, *, dtype: torch.dtype = torch.float32) -> None:
        generator = torch.Generator().manual_seed(0)
        weight_VD = torch.randn(VOCABULARY, width, generator=generator).mul_(2 / width**0.5)
        self.head = Head(weight_VD=weight_VD.to(dtype))
        self.gradient_VD = torch.zeros_like(self.head.weight_VD)
        self.states_ND = torch.randn(tokens, width, generator=generator).to(dtype)
        taught_ND = self.states_ND + torch.randn(tokens, width, generator=generator).to(dtype)
        self.sample = self._sample(torch.randint(VOCABULARY, (tokens,), generator=generator), every=1)
        pupil = Pupil(sample=self.sample, states_TD=self.states_ND, teachers=(taught_ND,))
        (self.target,) = targets(self.head, [pupil], self.head, SETTINGS)

    @staticmethod
    def _sample(ids_T: Tensor, *, every: int) -> Sample:
        """A sample whose every so many-th token trains."""
        mask_T = torch.arange(len(ids_T)) % every == 0
        return Sample(ids_T=ids_T, mask_T=mask_T, behaviour_T=None, tau=1.0, advantage=1.0, hints=1)

    def rows(self, *, every: int = 1) -> Rows:
        sample = self._sample(self.sample.ids_T, every=every)
        return turn_rows([sample], [self.target], denominators([sample], SETTINGS), SETTINGS)

    def fused(self, rows: Rows) -> Learned:
        return learn(self.head, self.states_ND, rows, SETTINGS, Gradients(weight_VD=self.gradient_VD))

    def plain(self) -> tuple[Tensor, Tensor]:
        """The gradients of states and weight by autograd through whole logits."""
        states_ND = self.states_ND.clone().requires_grad_()
        weight_VD = self.head.weight_VD.detach().requires_grad_()
        over = denominators([self.sample], SETTINGS)
        loss = share(states_ND @ weight_VD.t(), self.sample, self.target, over, SETTINGS).loss
        by_states_ND, by_weight_VD = torch.autograd.grad(loss, (states_ND, weight_VD))
        return by_states_ND, by_weight_VD

    def three_products(self, room_NV: Tensor) -> None:
        for states_ND in self.states_ND.split(CHUNK):
            logits_NV = torch.mm(states_ND, self.head.weight_VD.t(), out=room_NV[: len(states_ND)])
            torch.mm(logits_NV, self.head.weight_VD)
            self.gradient_VD.addmm_(logits_NV.t(), states_ND)

    def one_product(self, room_NV: Tensor) -> None:
        for states_ND in self.states_ND.split(CHUNK):
            torch.mm(states_ND, self.head.weight_VD.t(), out=room_NV[: len(states_ND)])


def loss_time(tokens: int, runs: int, groups: set[str]) -> list[Row]:
    """L1 and L4."""
    work, found = Work(tokens, 512), []
    room_NV, whole, quarter = work.head.room(CHUNK), work.rows(), work.rows(every=4)
    variants: dict[str, Callable[[], object]] = {"floor": lambda: work.three_products(room_NV)}
    variants["fused"] = lambda: work.fused(whole)
    if "L1" in groups:
        variants["plain"] = work.plain
    if "L4" in groups:
        variants["quarter"] = lambda: work.fused(quarter)
    timed, rejected = interleaved(variants, runs=runs)
    note = f"({len(timed)} runs, {rejected} thrown away)"
    if "L1" in groups:
        found.append(
            Row(
                id="L1",
                what="loss / 3 matrix products, D 512",
                values=ratios(timed, "fused"),
                target=1.20,
                note=note,
            )
        )
        found.append(
            Row(
                id="",
                what="the plain way / 3 matrix products, D 512",
                values=ratios(timed, "plain"),
                target=None,
            )
        )
    if "L4" in groups:
        values = ratios(timed, "quarter", "fused")
        found.append(
            Row(id="L4", what="loss with 25 % of rows live / with all", values=values, target=0.32, note=note)
        )
    return found


def wide_loss_time(tokens: int, runs: int) -> list[Row]:
    """L1 at D 2560."""
    work = Work(tokens, 2560)
    room_NV, rows = work.head.room(CHUNK), work.rows()
    variants = {"floor": lambda: work.three_products(room_NV), "fused": lambda: work.fused(rows)}
    timed, rejected = interleaved(variants, runs=runs)
    note = f"({len(timed)} runs, {rejected} thrown away)"
    return [
        Row(
            id="L1w",
            what="loss / 3 matrix products, D 2560",
            values=ratios(timed, "fused"),
            target=1.12,
            note=note,
        )
    ]


def loss_memory(tokens: int) -> list[Row]:
    """L2. The plain way's own dW is taken off what it needs."""
    chunk_bytes = CHUNK * VOCABULARY * 4
    fused, plain = _loss_bytes(tokens, plain=False), _loss_bytes(tokens, plain=True)
    twice = _loss_bytes(2 * tokens, plain=False)
    note = f"({fused / 2**20:.0f} MiB, plain {plain / 2**20:.0f} MiB)"
    return [
        Row(
            id="L2",
            what="loss, memory beyond dW / chunk * V * 4 B",
            values=(fused / chunk_bytes,),
            target=1.2,
            note=note,
        ),
        Row(id="", what="loss, memory / the plain way's", values=(fused / plain,), target=0.12),
        Row(id="", what="loss, memory at twice the rows / at once", values=(twice / fused,), target=1.05),
    ]


def _loss_bytes(tokens: int, *, plain: bool) -> int:
    work = Work(tokens, 512)
    rows = work.rows()
    return (
        peak_bytes(work.plain) - work.head.weight_VD.nbytes if plain else peak_bytes(lambda: work.fused(rows))
    )


def loss_error(tokens: int) -> list[Row]:
    """L3, relative to the largest gradient of its kind, against autograd in fp64."""
    found = []
    for dtype, target in ((torch.float64, 1e-12), (torch.float32, 5e-6)):
        work = Work(tokens, 64, dtype=dtype)
        learned = work.fused(work.rows())
        exact = Work(tokens, 64, dtype=torch.float64)
        exact.head = Head(weight_VD=work.head.weight_VD.double())
        exact.states_ND, exact.target = work.states_ND.double(), work.target
        for mine, truth in zip((learned.slopes_ND, work.gradient_VD), exact.plain(), strict=True):
            apart = float((mine.double() - truth).abs().max() / truth.abs().max())
            kind = "states" if len(mine) == tokens else "dW"
            what = f"gradient of {kind} against fp64, in {str(dtype).removeprefix('torch.')}"
            found.append(Row(id="L3", what=what, values=(apart,), target=target))
    return found


def scoring_time(tokens: int, runs: int) -> list[Row]:
    """S1 and S2."""
    work = Work(tokens, 1024)
    room_NV, tau_N, ids_N1 = work.head.room(CHUNK), torch.ones(tokens), work.sample.ids_T[:, None]
    timed, rejected = interleaved(
        {
            "floor": lambda: work.one_product(room_NV),
            "top": lambda: score(work.head, work.states_ND, tau_N, ids_N1, k=TOP),
            "gather": lambda: score(work.head, work.states_ND, tau_N, ids_N1),
        },
        runs=runs,
    )
    note = f"({len(timed)} runs, {rejected} thrown away)"
    what = "scoring, top-20, gather, logsumexp / 1 matrix product"
    return [
        Row(id="S1", what=what, values=ratios(timed, "top"), target=1.15, note=note),
        Row(
            id="S2",
            what="scoring, gather, logsumexp / 1 matrix product",
            values=ratios(timed, "gather"),
            target=1.08,
        ),
    ]


def top_time(runs: int) -> list[Row]:
    """S3."""
    logits_NV = torch.randn(CHUNK, VOCABULARY, generator=torch.Generator().manual_seed(0))
    floor, mine = logits_NV.topk(TOP).indices, two_stage(logits_NV, TOP)[0]
    if not (torch.equal(floor, mine) and torch.equal(top_k(logits_NV, TOP), mine)):
        raise SystemExit("the two stages found other ids than torch.topk")
    variants = {"floor": lambda: logits_NV.topk(TOP), "stages": lambda: two_stage(logits_NV, TOP)}
    timed, rejected = interleaved(variants, runs=5 * runs)
    note = f"({len(timed)} runs, {rejected} thrown away; identical ids)"
    return [
        Row(
            id="S3",
            what="two-stage top-20 / torch.topk",
            values=ratios(timed, "stages"),
            target=0.6,
            note=note,
        )
    ]


def peak_bytes(work: Callable[[], object]) -> int:
    """How far the resident memory rises above where it was."""
    gc.collect()
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    work()
    return _resident("VmHWM") - before


def _resident(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="L1,L2,L3,L4,S1,S3", help=f"of {', '.join(GROUPS)}; S1 brings S2")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    groups, rows = set(asked.only.split(",")), list[Row]()
    if unknown := groups - set(GROUPS):
        parser.error(f"--only knows {', '.join(GROUPS)}, not {', '.join(sorted(unknown))}")
    if groups & {"L1", "L4"}:
        rows += loss_time(asked.rows, asked.runs, groups)
    if "L1w" in groups:
        rows += wide_loss_time(asked.rows, asked.runs)
    if "L2" in groups:
        rows += loss_memory(asked.rows)
    if "L3" in groups:
        rows += loss_error(64)
    if "S1" in groups:
        rows += scoring_time(asked.rows, asked.runs)
    if "S3" in groups:
        rows += top_time(asked.runs)
    facts = {
        "torch": torch.__version__,
        "vocabulary": VOCABULARY,
        "rows_of_states": asked.rows,
        "chunk": CHUNK,
    }
    report(
        "time and memory of scoring and the loss against their matrix products", rows, out=asked.out, **facts
    )


if __name__ == "__main__":
    main()
