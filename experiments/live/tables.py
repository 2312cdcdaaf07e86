"""Live runs as tables of the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from experiments.live.runs import LiveResult

ROWS = {
    ("tools", "preference"): "keeps the owner's house rules",
    ("tools", "task_success"): "does the task",
    ("chat", "preference"): "answers as this person likes it",
    ("chat", "task_success"): "gives every fact asked for",
}


def by_seed(results: Sequence[LiveResult]) -> str:
    """One world's runs: preference / task success at each measurement, how often the judge was right, and
    seconds of wall time; a row for each seed, then the mean."""
    measured = [point.interactions for point in results[0].points]
    titles = ["seed", *("start" if at == 0 else str(at) for at in measured), "judge right", "seconds"]
    rows = [titles, ["---"] * len(titles)]
    for result in sorted(results, key=lambda result: result.seed):
        cells = [f"{point.preference:.2f} / {point.task_success:.2f}" for point in result.points]
        rows.append([str(result.seed), *cells, f"{result.judge_accuracy:.0%}", f"{result.seconds:.0f}"])
    means = [f"{_mean(results, at, 'preference')} / {_mean(results, at, 'task_success')}" for at in measured]
    means.append(f"{fmean(result.judge_accuracy for result in results):.0%}")
    means.append(f"{fmean(result.seconds for result in results):.0f}")
    rows.append(["**mean**", *(f"**{cell}**" for cell in means)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def means(results: Sequence[LiveResult]) -> str:
    """Both worlds' means in one table."""
    measured = sorted({point.interactions for result in results for point in result.points})
    seeds = len({result.seed for result in results})
    lines = [
        f"| share of held-out tasks, mean of {seeds} seed{'s' * (seeds > 1)} | "
        + " | ".join(map(str, measured))
        + " |",
        "| --- " * (len(measured) + 1) + "|",
    ]
    for (world, what), words in ROWS.items():
        own = [result for result in results if result.world == world]
        at_each = [_mean(own, at, what) if _measured(own, at) else "" for at in measured]
        lines.append(f"| {world}: {words} | " + " | ".join(at_each) + " |")
    return "\n".join(lines) + "\n"


def _measured(results: Sequence[LiveResult], interactions: int) -> bool:
    return all(interactions in [point.interactions for point in result.points] for result in results)


def _mean(results: Sequence[LiveResult], interactions: int, what: str) -> str:
    return f"{fmean(getattr(result.at(interactions), what) for result in results):.2f}"
