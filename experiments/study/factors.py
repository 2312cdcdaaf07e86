"""The study's factors: settings, each changed away from the demo's own, and whole recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from afterwit import recipes
from experiments.simulation.plan import Plan, key

MOMENTS: Mapping[str, tuple[int, int]] = {"tools": (12, 24), "chat": (6, 12)}
"""By world, the interactions after which a run is measured: while most is still to learn, and at its end."""
SEEDS = 4
TASKS = 50
"""Held-out tasks of a measurement."""
OWN = "own"
"""The variant that changes nothing."""
WORLDS = ("tools", "chat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One value of a factor."""

    name: str
    settings: tuple[str, ...] = ()
    recipe: str | None = None
    publish_every: int = 1
    worlds: tuple[str, ...] = WORLDS
    """The worlds in which it is played: those in which it taught something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One thing that is varied; a world's own value is not a variant."""

    name: str
    title: str
    variants: tuple[Variant, ...]
    against: str = OWN
    """The runs that its variants are compared with."""

    def runs(self) -> dict[str, Variant]:
        """Its variants by the names of their runs."""
        return {f"{self.name}: {variant.name}": variant for variant in self.variants}


ALONE = "objective.objective=topk_opd"
ONLY_OPD = "objective: top-K OPD"
FACTORS = (
    Factor(
        name="objective",
        title="Objective",
        variants=(
            Variant(name="top-K OPD", settings=(ALONE,)),
            Variant(name="token OPD", settings=("objective.objective=token_opd",)),
            Variant(name="RL", settings=("objective.objective=rl", "objective.w_rl=1")),
        ),
    ),
    Factor(
        name="reward",
        title="Weight of the reward term",
        variants=(Variant(name="1e-6: only starts updates", settings=("objective.w_rl=1e-6",)),),
    ),
    Factor(
        name="pace",
        title="Top-K OPD alone, more steps for each hint",
        variants=(
            Variant(
                name="batch 1, 4 epochs",
                settings=(ALONE, "learner.batch=1", "learner.min_batch=1", "learner.epochs=4"),
            ),
        ),
        against=ONLY_OPD,
    ),
    Factor(
        name="k",
        title="Ids kept per position, K",
        variants=(Variant(name="1", settings=("objective.k=1",), worlds=("chat",)),),
    ),
    Factor(
        name="clip",
        title="Clip of the log-prob gap, C",
        variants=(Variant(name="1.0", settings=("objective.logprob_diff_clip=1.0",), worlds=("chat",)),),
    ),
    Factor(
        name="routing",
        title="Routing",
        variants=(Variant(name="routed", settings=("objective.routing=routed",), worlds=("tools",)),),
    ),
    Factor(
        name="reference",
        title="Weight of the KL term to the reference, beta",
        variants=(Variant(name="0", settings=("objective.beta=0",), worlds=("tools",)),),
    ),
    Factor(
        name="replay",
        title="Replayed turns in an update",
        variants=(Variant(name="0", settings=("learner.replay=0",)),),
    ),
    Factor(
        name="epochs",
        title="Epochs",
        variants=(
            Variant(name="1", settings=("learner.epochs=1",), worlds=("chat",)),
            Variant(name="4", settings=("learner.epochs=4",), worlds=("chat",)),
        ),
    ),
    Factor(
        name="lr",
        title="Learning rate",
        variants=(
            Variant(name="1e-4", settings=("learner.lr=1e-4",)),
            Variant(name="8e-4", settings=("learner.lr=8e-4",), worlds=("chat",)),
        ),
    ),
    Factor(
        name="staleness",
        title="Staleness and batch",
        variants=(
            Variant(name="published every 4", publish_every=4, worlds=("chat",)),
            Variant(name="batch 8", settings=("learner.batch=8", "learner.min_batch=8")),
        ),
    ),
)
RECIPES = Factor(
    name="recipe",
    title="Published recipes",
    variants=tuple(Variant(name=name, recipe=name) for name in recipes.names()),
)
"""Played like a factor, and shown on a page of their own."""
PLAYED = (*FACTORS, RECIPES)


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
        tasks=TASKS,
    )
    yield from _seeded(own, seeds)
    every = {name: variant for factor in PLAYED for name, variant in factor.runs().items()}
    for factor in PLAYED:
        if not only or factor.name in only:
            for name in [factor.against, *factor.runs()]:
                if name != OWN and world in every[name].worlds:
                    yield from _seeded(_varied(own, name, every[name]), seeds)


def _seeded(plan: Plan, seeds: int) -> Iterator[Plan]:
    return (replace(plan, seed=seed) for seed in range(seeds))


def _varied(own: Plan, name: str, variant: Variant) -> Plan:
    return replace(
        own,
        name=name,
        settings=variant.settings,
        recipe=variant.recipe,
        publish_every=variant.publish_every,
    )
