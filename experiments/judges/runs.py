"""The runs: judges that are wrong in a share of their answers, what may help, and people of other manners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from afterwit.apps.demo.people import Manner
from experiments.simulation.plan import Plan

SEEDS = (3, 4)
"""The rules were made while looking at seeds 1 and 2."""
TASKS = 60
"""Held-out tasks of a measurement."""
WRONG = (0.0, 0.1, 0.25, 0.4)
QUARTER = 0.25
MOMENTS = {"tools": (12, 36, 96), "chat": (6, 12, 36)}
"""By world, the interactions after which a run of the judges' table is measured."""
EARLY = {"tools": (12, 36), "chat": (6, 12)}
"""In the other tables: while there is something left to learn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row of a table."""

    table: str
    name: str
    settings: tuple[str, ...] = ()
    wrong: float = 0.0
    people: Manner = Manner.FULL
    worlds: tuple[str, ...] = ("tools", "chat")
    early: bool = False
    """Measured early, and not to the end."""


def _judges() -> Iterator[Case]:
    for wrong in WRONG:
        yield Case(table="judges", name=f"{wrong:.0%}", wrong=wrong)
    for name in ("consistent", "unanimous"):
        yield Case(
            table="judges",
            name=f"{QUARTER:.0%}, verify {name}",
            wrong=QUARTER,
            settings=(f"judge.verify={name}",),
        )


def _hints() -> Iterator[Case]:
    varied = {
        "own": (),
        "selection: shortest": ("objective.hint_selection=shortest",),
        "selection: token_optimal": ("objective.hint_selection=token_optimal",),
        "selection: random": ("objective.hint_selection=random",),
        "votes: 1": ("judge.votes=1",),
        "votes: 5": ("judge.votes=5",),
        "accept: any": ("judge.accept=any",),
        "K: 1": ("objective.k=1",),
        "K: 16": ("objective.k=16",),
        "teacher: live": ("learner.teacher=live",),
    }
    for name, settings in varied.items():
        yield Case(table="hints", name=name, settings=settings, wrong=QUARTER, early=True)


def _people() -> Iterator[Case]:
    for manner in Manner:
        yield Case(table="people", name=manner.value, people=manner, early=False)


CASES = (*_judges(), *_people(), *_hints())


def plans(seeds: int, tables: Sequence[str] = ()) -> list[Plan]:
    """Every run of these tables, all if none is named, seed by seed."""
    return [
        replace(plan, seed=seed)
        for seed in SEEDS[:seeds]
        for case in CASES
        if not tables or case.table in tables
        for plan in plans_of(case)
    ]


def plans_of(case: Case) -> list[Plan]:
    """A case's runs, of no seed yet. Those of people are the judges', so that each is played once."""
    moments = EARLY if case.early else MOMENTS
    return [
        Plan(
            world=world,
            seed=0,
            name=f"{case.table}: {case.name}",
            judge="rules",
            settings=case.settings,
            interactions=moments[world][-1],
            measured=(0, *moments[world]),
            tasks=TASKS,
            guarded=True,
            people=case.people,
            wrong=case.wrong,
        )
        for world in case.worlds
    ]
