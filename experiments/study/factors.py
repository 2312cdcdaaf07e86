"""The settings that the study varies, each away from a world's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from afterwit.apps.demo.worlds import world_named
from experiments.simulation.plan import Plan, key

MOMENTS: Mapping[str, tuple[int, int]] = {"tools": (36, 60), "chat": (6, 24)}
"""By world: interactions after which a run is measured: while most is still to learn, and at its end."""
SEEDS = 4
VOCABULARY = "V"
"""Stands for the size of the world's vocabulary in a setting."""
OWN = "own"
"""The variant that changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One value of a factor."""

    name: str
    settings: tuple[str, ...] = ()
    publish_every: int = 1
    judge: str | None = None
    """The study's own if None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One thing that is varied; a world's own value is no variant."""

    name: str
    title: str
    variants: tuple[Variant, ...]
    against: str = OWN
    """The runs that its variants are compared with."""

    def runs(self) -> dict[str, Variant]:
        """Its variants by the names of their runs."""
        return {f"{self.name}: {variant.name}": variant for variant in self.variants}


def _values(setting: str, *values: object, judge: str | None = None) -> tuple[Variant, ...]:
    return tuple(Variant(name=str(value), settings=(f"{setting}={value}",), judge=judge) for value in values)


ALONE, DISTILLED = "objective.objective=topk_opd", "objective.objective=topk_distill"
MODEL_JUDGES, ONLY_OPD = "judge: the model", "objective: topk_opd"
SINGLY = ("learner.batch=1", "learner.min_batch=1")
FACTORS = (
    Factor(
        name="objective",
        title="Objective",
        variants=(
            *_values("objective.objective", "topk_opd", "token_opd", "combine"),
            Variant(name="rl", settings=("objective.objective=rl", "objective.w_rl=1")),
        ),
    ),
    Factor(
        name="reward",
        title="Weight of the reward term",
        variants=(
            Variant(name="1e-6: starts updates only", settings=("objective.w_rl=1e-6",)),
            *_values("objective.w_rl", 1.0),
        ),
    ),
    Factor(
        name="pace",
        title="Top-K OPD alone, more steps a hint",
        variants=(
            Variant(name="batch 1", settings=(ALONE, *SINGLY)),
            Variant(name="batch 1, 4 epochs", settings=(ALONE, *SINGLY, "learner.epochs=4")),
            Variant(name="batch 1, 8 epochs", settings=(ALONE, *SINGLY, "learner.epochs=8")),
        ),
        against=ONLY_OPD,
    ),
    Factor(name="k", title="Ids kept per position, K", variants=_values("objective.k", 1, 2, 16, VOCABULARY)),
    Factor(name="tail", title="Tail bucket", variants=_values("objective.tail_bucket", "true")),
    Factor(name="clip", title="Clip of the log-prob gap, C", variants=_values("objective.diff_clip", 1.0)),
    Factor(
        name="distribution",
        title="Distillation alone: which part of the distribution",
        variants=(
            Variant(name="top-K OPD, 4", settings=(ALONE,)),
            Variant(name="top-K OPD, V", settings=(ALONE, "objective.k=V")),
            Variant(name="reverse KL, 50", settings=(DISTILLED, "objective.k=50")),
            Variant(name="reverse KL, V", settings=(DISTILLED, "objective.k=V")),
        ),
        against=ONLY_OPD,
    ),
    Factor(name="judge", title="Judge", variants=(Variant(name="the model", judge="model"),)),
    Factor(
        name="hints",
        title="Which hint teaches, of those the model gives",  # the rules' three votes are one hint
        variants=_values(
            "objective.hint_selection", "shortest", "longest", "token_optimal", "random", judge="model"
        ),
        against=MODEL_JUDGES,
    ),
    Factor(
        name="accept",
        title="Hint votes needed, of the model's three",
        variants=_values("judge.accept", "any", judge="model"),
        against=MODEL_JUDGES,
    ),
    Factor(name="routing", title="Routing", variants=_values("objective.routing", "routed")),
    Factor(name="teacher", title="Teacher's weights", variants=_values("learner.teacher", "ema", "live")),
    Factor(name="anchor", title="Anchor, beta", variants=_values("objective.beta", 0.0, 0.01, 0.1, 0.3)),
    Factor(name="replay", title="Replayed turns an update", variants=_values("learner.replay", 0, 2, 6)),
    Factor(name="epochs", title="Epochs", variants=_values("learner.epochs", 1, 2, 4)),
    Factor(name="gate", title="Update gate", variants=_values("learner.update_gate", "false")),
    Factor(name="lr", title="Learning rate", variants=_values("learner.lr", 1e-4, 2e-4, 8e-4)),
    Factor(name="temperature", title="Temperature", variants=_values("gateway.force_temperature", 1.0)),
    Factor(
        name="staleness",
        title="Staleness and batch",
        variants=(
            Variant(name="published every 4", publish_every=4),
            Variant(name="published every 8", publish_every=8),
            Variant(name="batch 8", settings=("learner.batch=8", "learner.min_batch=8")),
        ),
    ),
)


def plans(worlds: Sequence[str], only: Sequence[str], seeds: int) -> list[Plan]:
    """Every run, a world's own settings first, then factor by factor. `only`: these factors, all if empty.

    A variant that is a world's own value is its own run.
    """
    found: dict[str, Plan] = {}
    for world in worlds:
        for plan in _plans(world, only, seeds):
            found.setdefault(key(plan.facts()), plan)
    return list(found.values())


def _plans(world: str, only: Sequence[str], seeds: int) -> Iterator[Plan]:
    early, late = MOMENTS[world]
    own = Plan(
        world=world,
        seed=0,
        name=OWN,
        judge="rules",
        interactions=late,
        measured=(0, early, late),
    )
    yield from _seeded(own, seeds)
    every = {name: variant for factor in FACTORS for name, variant in factor.runs().items()}
    for factor in FACTORS:
        if not only or factor.name in only:
            for name in [factor.against, *factor.runs()]:
                if name != OWN:
                    yield from _seeded(_varied(own, name, every[name]), seeds)


def _seeded(plan: Plan, seeds: int) -> Iterator[Plan]:
    return (replace(plan, seed=seed) for seed in range(seeds))


def _varied(own: Plan, name: str, variant: Variant) -> Plan:
    return replace(
        own,
        name=name,
        settings=tuple(_sized(setting, own.world) for setting in variant.settings),
        publish_every=variant.publish_every,
        judge=variant.judge or own.judge,
    )


def _sized(setting: str, world: str) -> str:
    name, _, value = setting.partition("=")
    if value != VOCABULARY:
        return setting
    config = json.loads((world_named(world).folder / "model" / "config.json").read_text(encoding="utf-8"))
    return f"{name}={config['vocab_size']}"
