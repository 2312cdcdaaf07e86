"""The runs: settings that learn well, and settings that used to ruin the model, guarded and not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from experiments.simulation.plan import Plan

SEEDS = (4, 5, 6, 7)
"""The rules were made while looking at seeds 0 to 3."""
MEASURED: Mapping[str, tuple[int, ...]] = {"tools": (0, 12, 24, 36, 48, 60), "chat": (0, 12, 24, 36)}
TASKS = 60
"""Held-out tasks of a measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Settings that are played with and without promotion."""

    name: str
    settings: tuple[str, ...] = ()
    worlds: tuple[str, ...] = ("tools",)
    harmful: bool = True
    """Whether promotion has something to save here; else it must cost nothing."""
    content: int = 0
    """Tasks at the beginning after which people say thanks, whatever was done."""


NO_REFERENCE = "objective.beta=0"
CASES = (
    Case(name="own settings", worlds=("tools", "chat"), harmful=False),
    Case(name="a change of mind", harmful=False, content=24),
    Case(name="no reference", settings=(NO_REFERENCE,)),
    Case(name="no reference, thrice the rate", settings=(NO_REFERENCE, "learner.lr=1.2e-3")),
    Case(
        name="reward alone, no reference",
        settings=(NO_REFERENCE, "objective.objective=rl", "objective.w_rl=1"),
    ),
)


def plans(seeds: int) -> list[Plan]:
    """Every run of the first `seeds` seeds: each case guarded, then not."""
    return [
        replace(plan, seed=seed, guarded=guarded)
        for seed in SEEDS[:seeds]
        for case in CASES
        for plan in _plans(case)
        for guarded in (True, False)
    ]


def _plans(case: Case) -> list[Plan]:
    return [
        Plan(
            world=world,
            seed=0,
            name=case.name,
            judge="rules",
            settings=case.settings,
            interactions=case.content + MEASURED[world][-1],
            measured=tuple(case.content + number for number in MEASURED[world]),
            tasks=TASKS,
            content=case.content,
        )
        for world in case.worlds
    ]
