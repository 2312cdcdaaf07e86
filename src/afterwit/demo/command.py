"""`afterwit demo`: people use an agent on the real system; what it learns is measured and written down."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from afterwit.demo import report
from afterwit.demo.live import Measurement, Run, live_home, refuse_file
from afterwit.demo.pages import measurements
from afterwit.demo.people import MEASURE, SEED, held_out
from afterwit.demo.settings import Chosen, choose
from afterwit.demo.worlds import WORLDS, world_named
from afterwit.errors import SettingError
from afterwit.home.backup import refuse_running
from afterwit.home.home import STORE, remembered_model
from afterwit.printing.terminal import Terminal, Working
from afterwit.running.logs import set_up

HELD_OUT = 100
MEASURED = (4, 12, 36, 96, 200, 350, 500)
"""Interactions after which the policy is measured, in addition to the start and the end."""


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
    refuse_file(out)
    began, home, console = time.monotonic(), out / "home", Terminal()
    set_up(logging.ERROR)
    if interactions < 1:
        raise SettingError(f"--interactions {interactions}: at least one is needed")
    played_in = world_named(world)
    chosen = choose(played_in, home, judge=judge, recipe=recipe, pairs=pairs, direct=direct)
    replace_earlier(home, console)
    announce(console, chosen, title=recipe or "")
    with live_home(
        chosen.settings,
        home,
        rules=played_in.judge if chosen.judge == "rules" else None,
        own_server=not (direct or {}).get("engine.url"),
        stopped=f"stopped before the report; look at what it did: `afterwit turns --home {home}`",
    ) as (system, line):
        played = Run(
            system=system,
            world=played_in,
            held_out=held_out(played_in, MEASURE, HELD_OUT, SEED + seed),
            seed=seed,
            measured=measured,
            began=began,
            step=line.step,
        )
        _watch(played, interactions, line, console)
        facts = report.facts_of(played, chosen)
    report.write(facts | {"seconds": round(time.monotonic() - began, 1)}, out)
    points = played.points
    rows = ((p.interactions, p.preference, f"{p.task_success:.2f}", f"{p.seconds:.0f}") for p in points)
    console.print(measurements(("tasks", "preference", "task success", "seconds"), rows))
    console.say(f"{interactions} tasks in {time.monotonic() - began:.0f} s; report: {out / 'report.html'}")
    console.say(f"what it learned, and from which words: `afterwit ledger --home {home}`")


def replace_earlier(home: Path, console: Terminal) -> None:
    """Delete an earlier demo's home. SettingError if it belongs to something else, AlreadyRunning if it is in
    use."""
    if not (home / STORE).exists():
        return
    models = {(world.folder / "model").parts[-4:] for world in WORLDS.values()}  # the package may have moved
    model = remembered_model(home)
    if model is not None and Path(model).parts[-4:] not in models:
        raise SettingError(f"{home} holds the home of something else: choose another --out")
    refuse_running(home, "a running demo is not replaced; choose another --out")
    console.say(f"replacing what an earlier demo left in {home}; --out keeps both")
    shutil.rmtree(home)


def _watch(run: Run, interactions: int, line: Working, console: Terminal) -> None:
    """Play it with the newest conversation under the progress, and a line for each measurement."""
    for found in run.play(interactions):
        version = run.system.version()
        if isinstance(found, Measurement):
            console.say(
                f"{found.seconds:6.0f} s  after {found.interactions:3d} tasks, version {version}: "
                f"preference {found.preference:.2f}, task success {found.task_success:.2f}"
            )
            continue
        words = Text(f"person: {found.task.request}\n{report.transcript(found.messages)}")
        style = {"approval": "green", "failure": "red"}.get(found.mood, "yellow")
        title = f"task {len(run.interactions)}, now at version {version}"
        line.under = Panel(words, title=title, title_align="left", border_style=style)


def announce(console: Console, chosen: Chosen, *, title: str) -> None:
    """Print the settings in which the demo differs from its recipe."""
    if chosen.overrides:
        console.print(Text.assemble((title, "bold"), ", but for what a tiny model needs:"))
        for name, (published, here) in chosen.overrides.items():
            console.print(f"  {name}: {published} -> {here}", highlight=False)
