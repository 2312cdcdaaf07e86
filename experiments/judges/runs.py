"""The runs: judges that are wrong in a share of their answers, what may help, and people of other manners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.simulation.manners import Manner
from experiments.simulation.plan import Plan

SEEDS = (3, 4, 5, 6)
"""The rules were made while looking at seeds 1 and 2; how votes are counted together, after a look at 3."""
TASKS = 60
"""Held-out tasks of a measurement."""
WRONG = (0.0, 0.1, 0.25, 0.4)
QUARTER = 0.25
MOMENTS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "judges": {"tools": (12, 36, 96), "chat": (6, 12, 36)},
    "people": {"tools": (12, 36), "chat": (12, 36)},
    "hints": {"tools": (12, 36), "chat": (6, 12)},
}
"""By table and world, the interactions after which a run is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row of a table."""

    table: str
    name: str
    settings: tuple[str, ...] = ()
    wrong: float = 0.0
    people: Manner = Manner.FULL
    played: str | None = None
    """The name of another case, whose runs this case shares instead of its own."""


def _judges() -> Iterator[Case]:
    for wrong in WRONG:
        yield Case(table="judges", name=f"{wrong:.0%}", wrong=wrong)
    for name in ("off", "unanimous"):
        yield Case(
            table="judges",
            name=f"{QUARTER:.0%}, verify {name}",
            wrong=QUARTER,
            settings=(f"judge.verify={name}",),
        )


def _hints() -> Iterator[Case]:
    varied = {
        "selection: shortest": ("objective.hint_selection=shortest",),
        "selection: token_optimal": ("objective.hint_selection=token_optimal",),
        "votes: 1": ("judge.votes=1",),
        "accept: any": ("judge.accept=any",),
        "K: 1": ("objective.k=1",),
        "teacher: live": ("learner.teacher=live",),
    }
    yield Case(table="hints", name="own settings", played=f"judges: {QUARTER:.0%}")
    for name, settings in varied.items():
        yield Case(table="hints", name=name, settings=settings, wrong=QUARTER)


def _people() -> Iterator[Case]:
    yield Case(table="people", name=Manner.FULL.value, played="judges: 0%")
    for manner in (Manner.ONE, Manner.VAGUE, Manner.THANKLESS):
        yield Case(table="people", name=manner.value, people=manner)


CASES = (*_judges(), *_people(), *_hints())


def plans(seeds: int, tables: Sequence[str] = ()) -> list[Plan]:
    """Every run of these tables, all if none is named, seed by seed."""
    return [
        replace(plan, seed=seed)
        for seed in SEEDS[:seeds]
        for case in CASES
        if case.played is None and (not tables or case.table in tables)
        for plan in plans_of(case)
    ]


def name_of(case: Case) -> str:
    """The name of the case's runs."""
    return case.played or f"{case.table}: {case.name}"


def plans_of(case: Case) -> list[Plan]:
    """A case's runs, of no seed yet."""
    moments = MOMENTS[case.table]
    return [
        Plan(
            world=world,
            seed=0,
            name=name_of(case),
            judge="rules",
            settings=case.settings,
            interactions=moments[world][-1],
            measured=(0, *moments[world]),
            tasks=TASKS,
            guarded=True,
            people=case.people,
            wrong=case.wrong,
        )
        for world in moments
    ]
