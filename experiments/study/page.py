"""The study's finished runs by name, and the blocks between the marks of a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from afterwit.demo.people import MEASURE
from experiments.compare.curve import Curve
from experiments.simulation.plan import Point, RunResult
from experiments.study.factors import FACTORS, MOMENTS, Factor
from experiments.study.statistics import Measure, measure


def preference(point: Point) -> float:
    """The share of tasks done the person's way."""
    return point.preference


def success(point: Point) -> float:
    """The share of tasks that were done."""
    return point.task_success


def shown(world: str) -> dict[str, Measure]:
    """The measures of a world's run, by their heading."""
    early, late = MOMENTS[world]
    return {
        f"preference @{early}": measure(early, MEASURE, preference),
        f"preference @{late}": measure(late, MEASURE, preference),
        f"success @{late}": measure(late, MEASURE, success),
    }


def filled(page: str, name: str, block: str) -> str:
    """The page with a block between its marks. ValueError if marks of that name are missing."""
    marks = f"<!-- runs: {name} -->", "<!-- /runs -->"
    pattern = re.compile(f"({re.escape(marks[0])}\n).*?({re.escape(marks[1])})", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no marks {marks[0]} ... {marks[1]}")
    return pattern.sub(lambda found: found[1] + block + found[2], page)


def by_name(results: Iterable[RunResult], world: str) -> dict[str, list[RunResult]]:
    """A world's runs, by what they are called, in the order of their seeds."""
    found: dict[str, list[RunResult]] = {}
    for result in sorted(results, key=lambda result: result.facts["seed"]):
        if result.facts["world"] == world:
            found.setdefault(result.name, []).append(result)
    return found


def there(runs: Mapping[str, object]) -> list[Factor]:
    """The factors that there are runs of, and runs to compare them with."""
    return [
        factor for factor in FACTORS if factor.against in runs and any(name in runs for name in factor.runs())
    ]


def compared(results: Sequence[RunResult], names: Mapping[str, str], world: str) -> list[Curve]:
    """The curves of these runs, by what they are called, if there are any."""
    runs = by_name(results, world)
    return [Curve(name=name, runs=tuple(runs[own])) for name, own in names.items() if own in runs]
