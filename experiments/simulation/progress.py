"""The runs' progress, for a person at a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.simulation.plan import RunResult


class Bar:
    """A bar over all interactions of all runs; without a terminal, one line for each run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("runs")
        self._runs = self._over = 0

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def began(self, runs: int, interactions: int) -> None:
        """The work to be done."""
        self._runs, self._over = runs, 0
        self._progress.reset(self._task, total=interactions, description=f"0 of {runs} runs")

    def went_on(self, interactions: int) -> None:
        """This many more interactions were played."""
        self._progress.advance(self._task, interactions)

    def ended(self, result: RunResult) -> None:
        """A run is over."""
        self._over += 1
        self._progress.update(self._task, description=f"{self._over} of {self._runs} runs")
        if not self._console.is_terminal:
            self._console.print(f"{self._over} of {self._runs} runs: {_said(result)}", highlight=False)


def _said(result: RunResult) -> str:
    last, facts = result.points[-1], result.facts
    return (
        f"{result.name}, {facts['world']}, seed {facts['seed']}: {last.preference:.2f} / "
        f"{last.task_success:.2f} after {last.interactions}, {result.cpu_s:.0f} CPU s"
    )
