"""`afterwit demo`: people use an agent on the real system; what it learns is measured and written down."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from afterwit.demo.display import Display
from afterwit.demo.live import Run, judge_accuracy, live
from afterwit.demo.people import MEASURE, PEOPLE, SEED, held_out
from afterwit.demo.report import (
    Conversation,
    Decision,
    Report,
    conversations_of,
    examples,
    rules_learned,
    write,
)
from afterwit.demo.settings import JUDGES, Chosen, choose, config_text
from afterwit.demo.worlds import world_named
from afterwit.engines.server.settings import ServerSettings
from afterwit.errors import SettingError
from afterwit.running.logs import quiet
from afterwit.running.up import engine_process

HELD_OUT = 100
MEASURED = (12, 36, 96, 200, 350, 500)
"""Interactions after which the policy is measured, in addition to the start and the end."""


def run(
    world: str,
    *,
    out: Path,
    interactions: int = 96,
    seed: int = 0,
    judge: str | None = None,
    recipe: str | None = None,
    pairs: Sequence[str] = (),
    direct: Mapping[str, Any] | None = None,
    measured: Sequence[int] = MEASURED,
) -> Report:
    """Play the demo and leave its report in `out`. SettingError for an unknown choice.

    `pairs` are settings as `--set` takes them, `direct` settings by name.
    """
    began, home, console = time.monotonic(), out / "home", Console()
    quiet()
    if interactions < 1:
        raise SettingError(f"--interactions {interactions}: at least one is needed")
    played_in = world_named(world)
    chosen = choose(played_in, home, judge=judge, recipe=recipe, pairs=pairs, direct=direct)
    _write_home(home, chosen, console)
    announce(console, chosen, title=recipe or "")
    server = None
    if isinstance(chosen.settings.engine, ServerSettings) and not (direct or {}).get("engine.url"):
        kind = chosen.settings.engine.kind
        console.print(f"starting a {kind} server; its log is in {home}", highlight=False)
        server = engine_process(chosen.settings, home)
    rules = played_in.judge if chosen.judge == "rules" else None
    with live(chosen.settings, home, rules=rules, server=server) as system:
        with Display(console, interactions) as display:
            played = Run(
                system=system,
                world=played_in,
                split=PEOPLE,
                held_out=held_out(played_in, MEASURE, HELD_OUT, SEED + seed),
                seed=seed,
                measured=measured,
                began=began,
                observer=display,
            )
            played.play(interactions)
        talks = conversations_of(system, played_in, played.interactions)
        versions = system.store(lambda store: sum(row.trained > 0 for row in store.versions()))
    written = _report(chosen, played, talks, versions, began)
    write(written, out)
    display.summary(written, out)
    return written


def _report(
    chosen: Chosen, played: Run, talks: Sequence[Conversation], versions: int, began: float
) -> Report:
    world, settings, first, last = played.world, chosen.settings, played.scores[0], played.scores[-1]
    accuracies = judge_accuracy(settings, world, seed=played.seed, rules=chosen.judge == "rules")
    return Report(
        world=world.name,
        kept_when=world.kept_when,
        passed_when=world.passed_when,
        seed=played.seed,
        objective=settings.objective.objective,
        judge=JUDGES[chosen.judge],
        judge_accuracy=accuracies["all"],
        judge_accuracies=accuracies,
        interactions=len(played.interactions),
        seconds=time.monotonic() - began,
        points=tuple(played.points),
        rules=rules_learned(world.rules, played.scores, talks),
        examples=examples(first, last),
        conversations=tuple(talks),
        versions=versions,
        decisions=tuple(
            Decision(after=after, kind=event.kind.value, words=event.words)
            for after, event in played.decisions
        ),
        settings=settings.model_dump(
            mode="json", include={"objective", "learner", "judge", "gateway", "promotion"}
        ),
    )


def announce(console: Console, chosen: Chosen, *, title: str) -> None:
    """Print the settings in which the demo differs from its recipe."""
    if not chosen.overrides:
        return
    console.print(f"[bold]{title}[/bold], but for what a tiny model needs:")
    for each in chosen.overrides:
        console.print(f"  {each.name}: {each.published} -> {each.here}", highlight=False)


def _write_home(home: Path, chosen: Chosen, console: Console) -> None:
    """The demo's own home, without the files of an earlier run."""
    if (home / "store.db").exists():
        console.print(f"replacing what an earlier demo left in {home}; --out keeps both", highlight=False)
        shutil.rmtree(home)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "config.toml").write_text(config_text(chosen.settings), encoding="utf-8")
