"""`afterwit demo`: people use an agent on the real system; what it learns is measured and written down."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from afterwit.demo import report
from afterwit.demo.live import LiveSystem, Measurement, Run, live
from afterwit.demo.people import MEASURE, SEED, Interaction, held_out
from afterwit.demo.settings import JUDGES, Chosen, choose, config_text
from afterwit.demo.worlds import world_named
from afterwit.engines.server.settings import ServerSettings
from afterwit.errors import SettingError
from afterwit.printing.terminal import end_at_signals
from afterwit.running.logs import set_up
from afterwit.running.up import engine_process, guarded

HELD_OUT = 100
MEASURED = (4, 12, 36, 96, 200, 350, 500)
"""Interactions after which the policy is measured, in addition to the start and the end."""
BAR = 30


def run(
    world: str,
    *,
    out: Path,
    interactions: int = 48,
    seed: int = 0,
    judge: str | None = None,
    recipe: str | None = None,
    pairs: Sequence[str] = (),
    direct: Mapping[str, Any] | None = None,
    measured: Sequence[int] = MEASURED,
) -> None:
    """Play the demo and leave its report in `out`. SettingError for an unknown choice.

    `pairs` are settings as `--set` takes them, `direct` settings by name.
    """
    began, home, console = time.monotonic(), out / "home", Console(highlight=False)
    set_up(logging.ERROR)
    if interactions < 1:
        raise SettingError(f"--interactions {interactions}: at least one is needed")
    played_in = world_named(world)
    chosen = choose(played_in, home, judge=judge, recipe=recipe, pairs=pairs, direct=direct)
    _write_home(home, chosen, console)
    announce(console, chosen, title=recipe or "")
    settings, server = chosen.settings, None
    if isinstance(settings.engine, ServerSettings) and not (direct or {}).get("engine.url"):
        console.print(f"starting a {settings.engine.kind} server; its log is in {home}")
        settings = guarded(settings, home, os.environ)
        server = engine_process(settings, home)
    kept = f"stopped before the report; look at what it did: `afterwit turns --home {home}`"
    end_at_signals(kept, () if server is None else (server,))
    rules = played_in.judge if chosen.judge == "rules" else None
    with live(settings, home, rules=rules, server=server) as system:
        console.print(Text.assemble("watch it at ", (str(system.runtime.page), "bold")), soft_wrap=True)
        with Display(console, interactions) as display:
            played = Run(
                system=system,
                world=played_in,
                held_out=held_out(played_in, MEASURE, HELD_OUT, SEED + seed),
                seed=seed,
                measured=measured,
                began=began,
                observer=display,
            )
            played.play(interactions)
        facts = _learned(system, played)
    facts |= _played(chosen, played)
    report.write(facts, out)
    console.print(measurements(played.points))
    console.print(f"{interactions} tasks in {facts['seconds']:.0f} s; report: {out / 'report.html'}")
    console.print(f"what it learned, and from which words: `afterwit ledger --home {home}`", soft_wrap=True)


def _learned(system: LiveSystem, played: Run) -> dict[str, Any]:
    seen = played.interactions
    records = system.store(lambda store: [[store.turn(turn) for turn in one.turns] for one in seen])
    talks = [
        report.conversation(number, one, played.world, its)
        for number, (one, its) in enumerate(zip(seen, records, strict=True), start=1)
    ]
    decisions = [
        {"after": after, "kind": event.kind.value, "words": event.words} for after, event in played.decisions
    ]
    return {
        **report.summary(played.points, talks, decisions),
        "rules": report.rules_learned(played.world.rules, played.scores, talks),
        "versions": system.store(lambda store: sum(row.trained > 0 for row in store.versions())),
    }


def _played(chosen: Chosen, played: Run) -> dict[str, Any]:
    """The report's part on the game and its results."""
    world, settings = played.world, chosen.settings
    return {
        "world": world.name,
        "kept_when": world.kept_when,
        "passed_when": world.passed_when,
        "seed": played.seed,
        "objective": settings.objective.objective,
        "judge": JUDGES[chosen.judge],
        "interactions": len(played.interactions),
        "seconds": round(time.monotonic() - played.began, 1),
        "curve": [dataclasses.asdict(point) for point in played.points],
        "examples": report.examples(played.scores[0], played.scores[-1]),
        "settings": settings.model_dump(
            mode="json", include={"objective", "learner", "judge", "gateway", "promotion"}
        ),
    }


def announce(console: Console, chosen: Chosen, *, title: str) -> None:
    """Print the settings in which the demo differs from its recipe."""
    if chosen.overrides:
        console.print(f"[bold]{title}[/bold], but for what a tiny model needs:")
        for name, (published, here) in chosen.overrides.items():
            console.print(f"  {name}: {published} -> {here}", highlight=False)


def _write_home(home: Path, chosen: Chosen, console: Console) -> None:
    """The demo's own home, without the files of an earlier run."""
    if (home / "store.db").exists():
        console.print(f"replacing what an earlier demo left in {home}; --out keeps both")
        shutil.rmtree(home)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "config.toml").write_text(config_text(chosen.settings), encoding="utf-8")


class Display:
    """A live view on a terminal: progress, the last conversation, and the measurements so far. Elsewhere a
    line for each measurement."""

    def __init__(self, console: Console, interactions: int) -> None:
        self._console = console
        columns = TextColumn("people's tasks"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task("", total=interactions)
        self._points: list[Measurement] = []
        starting = "starting the gateway, the engine, the judge and the learner"
        self._talk: RenderableType = Text(starting, style="dim")
        self._live = Live(self._view(), console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def measuring(self) -> None:
        self._live.update(self._view("measuring on held-out tasks, without hints ..."))

    def measured(self, point: Measurement, version: int) -> None:
        self._points.append(point)
        if not self._console.is_terminal:
            self._console.print(
                f"{point.seconds:6.0f} s  after {point.interactions:3d} tasks, version {version}: "
                f"preference {point.preference:.2f}, task success {point.task_success:.2f}",
            )
        self._live.update(self._view())

    def task_done(self, number: int, interaction: Interaction, version: int) -> None:
        self._progress.update(self._task, completed=number)
        words = Text(f"person: {interaction.task.request}\n{report.transcript(interaction.messages)}")
        style = {"approval": "green", "failure": "red"}.get(interaction.mood, "yellow")
        title = f"task {number}, now at version {version}"
        self._talk = Panel(words, title=title, title_align="left", border_style=style)
        self._live.update(self._view())

    def _view(self, state: str = "") -> RenderableType:
        points = [measurements(self._points)] if self._points else []
        return Group(self._progress, self._talk, *points, *([Text(state, style="dim")] if state else []))


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
