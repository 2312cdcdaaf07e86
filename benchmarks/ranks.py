"""How many turns a second do two learner processes learn, against one?

Sixteen turns of sixteen sessions with a hint each, of unequal lengths, so that little is shared; a small
random Qwen3 with a real vocabulary, under an adapter (r 16) and with full weights. What is timed is an update
as a learner makes it: passes, the sum of the gradients, AdamW's step, the effects. Each process has one
thread; while one learns alone, the other waits. Both ways have a policy of their own, which has learned once
before it is timed: its optimiser's state is in memory, as in a learner that runs. Wall clock: run it while
nothing else runs, on at least two cores.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random

import torch

from afterwit.checkpoints.versions import Versions
from afterwit.learning.batch import Behaviour, Item
from afterwit.learning.distributed.group import joined
from afterwit.learning.passes import ALONE, Ranks, Row
from afterwit.learning.policy import FrozenModels, Policy
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.update import update
from afterwit.objective.settings import ObjectiveSettings
from benchmarks.asked import FEWER, VOCABULARY, Asked, Shape
from benchmarks.measure import Row as Figure
from benchmarks.measure import at_least, noted
from benchmarks.models import qwen3
from benchmarks.sessions import drawn
from tests.several import several

TURNS = 16
OBJECTIVE = ObjectiveSettings(k=16, beta=0.0)
WAYS = {"adapter": 16, "full weights": 0}


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one update, in each round."""

    alone: tuple[float, ...]
    shared: tuple[float, ...]


def rows(asked: Asked) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        turns = TURNS // 4 if asked.quick else TURNS
        shape = Shape(width=256, layers=4, vocabulary=FEWER if asked.quick else VOCABULARY)
        qwen3(shape, dtype=torch.float32, seed=0).save_pretrained(name)
        for way, rank in WAYS.items():
            settings = LearnerSettings(
                device="cpu", threads=1, lora_rank=rank, batch=turns, processes=2
            ).settled(shape.width)
            times = several(get_context("forkserver"), 2, _timed, Path(name), settings, shape, asked.runs)[0]
            if isinstance(times, Exception):
                raise times
            alone, shared = min(times.alone), min(times.shared)
            yield Figure(
                id="R1",
                what=f"turns a second of two learner processes / of one, {way}",
                values=tuple(one / two for one, two in zip(times.alone, times.shared, strict=True)),
                target=at_least(1.7),
                peer="one process",
                note=noted(f"{turns / shared:.2f} against {turns / alone:.2f} turns a second"),
            )


def _timed(base: Path, settings: LearnerSettings, shape: Shape, runs: int) -> Times:
    torch.set_num_threads(1)
    versions = Versions(root=base / "none", base=base)
    single, policy = (Policy.load(versions, 0, settings) for _ in range(2))
    frozen = FrozenModels(base, settings)
    items = _items(settings.batch, shape.vocabulary)

    def run(policy: Policy, ranks: Ranks) -> None:
        update(policy, frozen, items, OBJECTIVE, settings, lambda phase: None, ranks, measured=settings.batch)

    times: dict[str, list[float]] = {"alone": [], "shared": []}
    with joined(settings) as group:
        for _ in range(runs + 1):
            began = time.perf_counter()
            if group.rank == 0:
                run(single, ALONE)
            times["alone"].append(time.perf_counter() - began)
            with group.together():
                """The other waits."""
            began = time.perf_counter()
            run(policy, group)
            times["shared"].append(time.perf_counter() - began)
    return Times(*(tuple(each[1:]) for each in times.values()))


def _items(turns: int, vocabulary: int) -> list[Item]:
    """Turns of sessions of their own; prompts of 200 to 400 tokens, responses of 64 to 128."""
    random, items = Random(0), list[Item]()
    for number in range(turns):
        prompt = drawn(random, random.randrange(200, 400), vocabulary)
        said = drawn(random, random.randrange(64, 128), vocabulary)
        hinted = Row(prompt=prompt + drawn(random, 40, vocabulary), response=said)
        items.append(
            Item(
                turn=f"turn{number}",
                behaviour=Behaviour(forced=(False,) * len(said), logprobs=(-10.0,) * len(said)),
                student=Row(prompt=prompt, response=said),
                teachers=(hinted,),
                hints=("?",),
                reward=-1.0,
                staleness=0,
            )
        )
    return items
