"""What does one whole update cost, against the same update by a plain training loop?

Eight turns of one session with three hints each, K 16, a real vocabulary, a small random Qwen3: RL and top-K
OPD without the reference KL, as published, AdamW included. The published way makes whole logits of prompt and
response, sample by sample; the better plain way makes those of the response alone. Both are first shown to
have our loss and gradient. Memory is what torch's allocator holds beyond weights and optimiser state.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.checkpoints.versions import Versions
from afterwit.learning.batch import Behaviour, Item
from afterwit.learning.models import load_model, recompute_activations
from afterwit.learning.passes import Row
from afterwit.learning.policy import FrozenModels, Policy
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import update
from afterwit.objective.settings import ObjectiveSettings
from benchmarks.asked import FEWER, Asked, Scale, Shape
from benchmarks.measure import Row as Figure
from benchmarks.measure import Target, at_least, at_most, interleaved, noted, quotients, ratios
from benchmarks.models import qwen3
from benchmarks.plain_loop import PlainLoop
from benchmarks.sessions import Session

TAU = 0.6
OBJECTIVE = ObjectiveSettings(k=16, beta=0.0, w_rl=1.0)
SESSION = Session(turns=8, system=800, asked=60, said=96, hint=40)
LONG = Session(turns=8, system=800, asked=60, said=1024, hint=40)
"""A model that thinks before it answers."""
SMALL = Shape(width=256, layers=4)
SCALES = (
    Scale(shape=SMALL, tokens=SESSION.tokens),
    Scale(shape=replace(SMALL, vocabulary=FEWER), tokens=SESSION.tokens // 16),
)
BOTH = "both hold dW and the activations"
NAMES = {"published": "the published way", "kept": "response rows only"}


def rows(asked: Asked) -> Iterator[Figure]:
    for scale in asked.scales(*SCALES):
        with tempfile.TemporaryDirectory() as name:
            bench = Bench.set_up(asked, scale, Path(name))
        if scale.tag == "":
            yield _errors(bench)
        yield from _time(asked, scale, bench)
        yield from _memory(asked, scale, bench)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One batch; a policy for us and one, of the same weights, for the plain loops; and the frozen base."""

    items: list[Item]
    settings: LearnerSettings
    policy: Policy
    model: PreTrainedModel
    base: PreTrainedModel
    frozen: FrozenModels
    loops: dict[str, PlainLoop]
    """Both move `model`."""

    @classmethod
    def set_up(cls, asked: Asked, scale: Scale, folder: Path) -> Bench:
        device, dtype = torch.device(asked.device), asked.dtype
        for seed, name in enumerate(("base", "policy")):
            qwen3(scale.shape, dtype=dtype, seed=seed).save_pretrained(folder / name)
        precision = "float32" if dtype is torch.float32 else "bfloat16"
        settings = LearnerSettings(
            device=asked.device, dtype=precision, checkpointing=bool(scale.tag), lora_rank=0
        ).settled(scale.shape.width)
        policy = Policy.load(Versions(root=folder / "none", base=folder / "policy"), 0, settings)
        model = load_model(folder / "policy", dtype=dtype, device=device)
        if settings.checkpointing:
            recompute_activations(model, above=0)
        frozen = FrozenModels(folder / "base", settings)
        base = frozen.base(policy)
        items = batch(SESSION.times(scale.tokens / SESSION.tokens), scale.shape.vocabulary)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.rate, weight_decay=settings.weight_decay
        )
        loops = {
            way: PlainLoop(
                model=model, base=base, optimizer=optimizer, objective=OBJECTIVE, keep=way == "kept"
            )
            for way in NAMES
        }
        return cls(
            items=items, settings=settings, policy=policy, model=model, base=base, frozen=frozen, loops=loops
        )

    def ours(self) -> float:
        """Our loss, and one step of the policy."""
        found, _ = update(self.policy, self.frozen, self.items, OBJECTIVE, self.settings, lambda _: None)
        return found["loss"]


def batch(session: Session, vocabulary: int) -> list[Item]:
    """Each turn of the session, complained about and hinted at."""
    return [_item(*pair) for pair in zip(*session.rows(vocabulary), strict=True)]


def _item(student: Row, teachers: tuple[Row, ...]) -> Item:
    said = student.response
    behaviour = Behaviour(forced=(False,) * len(said), logprobs=(-10.0,) * len(said), temperature=TAU)
    hints = tuple("?" * (number + 1) for number in range(len(teachers)))
    return Item(
        turn=None,
        behaviour=behaviour,
        student=student,
        teachers=teachers,
        hints=hints,
        reward=-1.0,
        staleness=0,
    )


class Watch:
    """In the optimiser's place: it keeps the gradient and moves nothing."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.gradients: dict[str, Tensor] = {}
        self.param_groups: list[dict[str, float]] = []

    def step(self) -> None:
        self.gradients = {name: each.grad.clone() for name, each in self._policy.masters.named.items()}


def _errors(bench: Bench) -> Figure:
    """Our loss and gradient against those of both plain loops, relative to the largest of each tensor."""
    policy, watch = bench.policy, Watch(bench.policy)
    optimizer, policy.optimizer = policy.optimizer, watch
    settings = replace(bench.settings, clip=float("inf"))
    mine = update(policy, bench.frozen, bench.items, OBJECTIVE, settings, lambda _: None)[0]["loss"]
    policy.optimizer = optimizer
    worst = 0.0
    for loop in bench.loops.values():
        bench.model.zero_grad()
        theirs = loop.gradient(bench.items)
        worst = max(worst, abs(mine - theirs) / abs(theirs))
        for name, parameter in bench.model.named_parameters():
            apart = (watch.gradients[name] - parameter.grad).abs().max() / parameter.grad.abs().max()
            worst = max(worst, float(apart))
    bench.model.zero_grad()
    return Figure(
        id="E0",
        what="loss and gradient against both plain loops, error",
        values=(worst,),
        target=at_most(5e-6),
        peer="both plain loops",
    )


def _time(asked: Asked, scale: Scale, bench: Bench) -> Iterator[Figure]:
    """E1."""
    variants = {"floor": bench.ours} | {
        way: lambda loop=loop: loop.update(bench.items) for way, loop in bench.loops.items()
    }
    timed, note = interleaved(variants, runs=min(2, asked.runs), clock=asked.seconds)
    ours = min(run["floor"] for run in timed)
    for way, bound in (("published", 12), ("kept", 2.5)):
        yield Figure(
            id=f"E1{scale.tag}",
            what=f"time of {NAMES[way]} / ours",
            values=ratios(timed, way),
            target=at_least(bound),
            peer=NAMES[way],
            note=noted(f"ours {ours:.2f} s", note),
        )


def _memory(asked: Asked, scale: Scale, bench: Bench) -> Iterator[Figure]:
    """E2; optimiser states are there already."""
    said = SESSION.times(scale.tokens / SESSION.tokens).said
    ours = _bytes(asked, bench, bench.ours)
    for way, bound in (("published", 0.2), ("kept", 0.4)):
        yield _beside(asked, scale, bench, ours, way, at_most(bound), said)
    if not (scale.tag or asked.quick):
        thinking = replace(bench, items=batch(LONG, scale.shape.vocabulary))
        ours = _bytes(asked, thinking, thinking.ours)
        yield _beside(asked, scale, thinking, ours, "kept", at_most(0.4), LONG.said)


def _beside(
    asked: Asked, scale: Scale, bench: Bench, ours: tuple[int, ...], way: str, target: Target, said: int
) -> Figure:
    theirs = _bytes(asked, bench, lambda: bench.loops[way].update(bench.items))
    says = f"{theirs[0] / 2**20:.0f} MiB" if theirs else "more than there is"
    return Figure(
        id=f"E2{scale.tag}",
        what=f"peak memory / that of {NAMES[way]}, responses of {said}",
        values=quotients(ours, theirs),
        target=target if theirs else None,
        peer=NAMES[way],
        note=f"{ours[0] / 2**20:.0f} MiB against {says}",
        why=BOTH if way == "kept" else "",
    )


def _bytes(asked: Asked, bench: Bench, work: Callable[[], object]) -> tuple[int, ...]:
    """None: more than there is."""
    bench.model.zero_grad()
    try:
        return (asked.peak_bytes(work),)
    except MemoryError:
        return ()
