"""The demo on a terminal: progress, the last conversation, and the measurements so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from afterwit.demo.live import Measurement
from afterwit.demo.people import Interaction
from afterwit.demo.report import Report, transcript

BAR = 30


class Display:
    """A live view on a terminal; elsewhere a line for each measurement."""

    def __init__(self, console: Console, interactions: int) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("people's tasks"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._progress.add_task("", total=interactions)
        self._points: list[Measurement] = []
        self._talk: RenderableType = Text(
            "starting the gateway, the engine, the judge and the learner", style="dim"
        )
        self._state = ""
        self._live = Live(self._view(), console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def measuring(self) -> None:
        self._state = "measuring on held-out tasks, without hints ..."
        self._live.update(self._view())

    def measured(self, point: Measurement, version: int) -> None:
        self._points.append(point)
        self._state = ""
        if not self._console.is_terminal:
            self._console.print(
                f"{point.seconds:6.0f} s  after {point.interactions:3d} tasks, version {version}: "
                f"preference {point.preference:.2f}, task success {point.task_success:.2f}",
                highlight=False,
            )
        self._live.update(self._view())

    def task_done(self, number: int, interaction: Interaction, version: int) -> None:
        self._progress.update(self._task, completed=number)
        words = Text(f"person: {interaction.task.request}\n{transcript(interaction.messages)}")
        style = {"approval": "green", "failure": "red"}.get(interaction.mood, "yellow")
        title = f"task {number}, now at version {version}"
        self._talk = Panel(words, title=title, title_align="left", border_style=style)
        self._live.update(self._view())

    def _view(self) -> RenderableType:
        parts: list[RenderableType] = [self._progress, self._talk]
        if self._points:
            parts.append(measurements(self._points))
        if self._state:
            parts.append(Text(self._state, style="dim"))
        return Group(*parts)

    def summary(self, report: Report, out: Path) -> None:
        """Print the results and where the report is."""
        self._console.print(measurements(report.points))
        judge = (
            ""
            if report.judge_accuracy is None
            else f", right in {report.judge_accuracy:.0%} of held-out cases"
        )
        self._console.print(f"judge: {report.judge}{judge}", highlight=False)
        self._console.print(
            f"{report.interactions} tasks in {report.seconds:.0f} s; report: {out / 'report.html'}"
        )


def measurements(points: Sequence[Measurement]) -> Table:
    """Preference and task success, a row for each measurement."""
    table = Table("tasks", "preference", "", "task success", "seconds", box=None, pad_edge=False)
    for point in points:
        bar = "█" * round(BAR * point.preference)
        table.add_row(
            str(point.interactions),
            f"{point.preference:.2f}",
            Text(bar.ljust(BAR, "·"), style="blue"),
            f"{point.task_success:.2f}",
            f"{point.seconds:.0f}",
        )
    return table
