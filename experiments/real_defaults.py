"""`python -m experiments.real_defaults`: what `serve`'s own settings teach, with batches of several sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from experiments.simulation.plan import Plan
from experiments.simulation.processes import simulated

MEASURED: Mapping[str, tuple[int, ...]] = {"tools": (0, 20, 50, 100), "chat": (0, 20, 50)}
TASKS = 60
"""Held-out tasks of a measurement."""


def main(
    batch: Annotated[list[int], typer.Option(help="A size; may be given again.")] = [16, 8, 4],  # noqa: B006 - Typer's way
    seed: Annotated[int, typer.Option(help="Of people, tasks and sampling.")] = 8,
) -> None:
    """A row for each world and batch: preference / task success after so many conversations."""
    for world, measured in MEASURED.items():
        for size in batch:
            plan = Plan(
                world=world,
                seed=seed,
                judge="rules",
                settings=(f"learner.batch={size}",),
                interactions=measured[-1],
                measured=measured,
                tasks=TASKS,
                guarded=True,
                real_defaults=True,
            )
            points = simulated(plan, lambda: None).points
            cells = [f"{point.preference:.2f} / {point.task_success:.2f}" for point in points]
            print(f"| {world}, {size} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
