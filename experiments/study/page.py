"""Finished runs as tables and pictures between the marks of a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from afterwit.demo.people import MEASURE
from experiments.compare.compare import spread
from experiments.compare.curve import Curve
from experiments.simulation.plan import Point, RunResult
from experiments.study.factors import FACTORS, MOMENTS, OWN, Factor
from experiments.study.statistics import Difference, Measure, difference, measure


def preference(point: Point) -> float:
    """The share of tasks done the person's way."""
    return point.preference


def success(point: Point) -> float:
    """The share of tasks that were done."""
    return point.task_success


def shown(world: str) -> dict[str, Measure]:
    """What the study says of a world's run, by its heading."""
    early, late = MOMENTS[world]
    return {
        f"preference @{early}": measure(early, MEASURE, preference),
        f"preference @{late}": measure(late, MEASURE, preference),
        f"success @{late}": measure(late, MEASURE, success),
    }


def filled(page: str, name: str, block: str) -> str:
    """The page with a block between its marks. ValueError if it has no marks of that name."""
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


def study(results: Iterable[RunResult], world: str) -> str:
    """A row a variant, beneath its factor; the world's own settings first."""
    runs, measures = by_name(results, world), shown(world)
    heads = " | ".join(f"{heading} | difference" for heading in measures)
    lines = [
        f"| | {heads} | updates |",
        "| --- " * 8 + "|",
        _row("**the world's own settings**", runs[OWN], None, measures.values()),
    ]
    for factor in there(runs):
        against = "" if factor.against == OWN else f" (against *{factor.against}*)"
        lines.append(f"| **{factor.title}**{against} " + "| " * 7 + "|")
        lines += [
            _row(variant.name, runs[name], runs[factor.against], measures.values())
            for name, variant in factor.runs().items()
            if name in runs
        ]
    return "\n".join(lines) + "\n"


def there(runs: Mapping[str, object]) -> list[Factor]:
    """The factors that there are runs of, and runs to compare them with."""
    return [
        factor for factor in FACTORS if factor.against in runs and any(name in runs for name in factor.runs())
    ]


def _row(
    name: str, runs: Sequence[RunResult], own: Sequence[RunResult] | None, measures: Iterable[Measure]
) -> str:
    cells = [name]
    for of in measures:
        cells += [spread([of(run) for run in runs]), "" if own is None else said(difference(runs, own, of))]
    updates = f"{fmean(run.updates for run in runs):.0f}"
    return "| " + " | ".join([*cells, updates]) + " |"


def said(found: Difference) -> str:
    """The difference with its interval; bold where that leaves zero out."""
    if found.half is None:
        return f"{found.mean:+.2f}"
    words = f"{found.mean:+.2f} ± {found.half:.2f}"
    return f"**{words}**" if found.beyond_noise else words


def curves(compared: Sequence[Curve]) -> str:
    """A row an entry: preference at each measurement and task success at the last."""
    measured = compared[0].runs[0].measured
    heads = ["start" if at == 0 else f"@{at}" for at in measured]
    lines = [
        "| | " + " | ".join(heads) + f" | task success @{measured[-1]} | updates |",
        "| --- " * (len(measured) + 3) + "|",
    ]
    for curve in compared:
        cells = [spread([point.preference for point in curve.points(at)]) for at in measured]
        last = spread([point.task_success for point in curve.points(measured[-1])])
        updates = fmean(run.updates for run in curve.runs)
        lines.append("| " + " | ".join([curve.name, *cells, last, f"{updates:.0f}"]) + " |")
    return "\n".join(lines) + "\n"


def compared(results: Sequence[RunResult], names: Mapping[str, str], world: str) -> list[Curve]:
    """The curves of these runs, by what they are called, if there are any."""
    runs = by_name(results, world)
    return [Curve(name=name, runs=tuple(runs[own])) for name, own in names.items() if own in runs]
