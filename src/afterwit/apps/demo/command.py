"""`afterwit demo`: people use an agent on the real system; what it learns is measured and written down."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from rich.console import Console

from afterwit.apps.demo.live import Run, judge_accuracy, live
from afterwit.apps.demo.people import MEASURE, PEOPLE, SEED, held_out
from afterwit.apps.demo.report import report
from afterwit.apps.demo.report.before_after import examples, rules_learned
from afterwit.apps.demo.report.display import Display
from afterwit.apps.demo.report.lessons import lessons
from afterwit.apps.demo.report.report import Report
from afterwit.apps.demo.settings import JUDGES, Chosen, choose
from afterwit.apps.demo.worlds import world_named
from afterwit.apps.logs import quiet
from afterwit.core.errors import SettingError

HELD_OUT = 100


def run(
    *,
    world: str,
    objective: str | None,
    recipe: str | None,
    interactions: int,
    seed: int,
    out: Path,
    judge: str | None,
) -> Report:
    """Play the demo and leave its report in `out`. Raises SettingError for a choice that is not there."""
    began = time.monotonic()
    quiet()
    place = world_named(world)
    found = choose(place, out / "home", judge=judge, recipe=recipe, direct={"objective.objective": objective})
    settings, chosen = found.settings, found.judge
    if interactions < 1:
        raise SettingError(f"--interactions {interactions}: at least one is needed")
    _make_fresh(out / "home")
    announce(Console(), found, title=recipe or "")
    tasks = held_out(place, MEASURE, HELD_OUT, SEED + seed)
    with live(settings, out / "home", rules=place.judge if chosen == "rules" else None) as system:
        with Display(Console(), interactions) as display:
            played = Run(
                system=system,
                world=place,
                split=PEOPLE,
                held_out=tasks,
                seed=seed,
                began=began,
                observer=display,
            )
            played.play(interactions)
        learned = lessons(system, place, played.interactions)
    accuracies = judge_accuracy(settings, place, seed=seed, rules=chosen == "rules")
    written = Report(
        world=world,
        kept_when=place.kept_when,
        passed_when=place.passed_when,
        seed=seed,
        objective=settings.objective.objective,
        judge=JUDGES[chosen],
        judge_accuracy=accuracies["all"],
        judge_accuracies=accuracies,
        interactions=interactions,
        seconds=time.monotonic() - began,
        points=tuple(played.points),
        rules=rules_learned(place.rules, played.scores[0], played.scores[-1], learned),
        examples=examples(played.scores[0], played.scores[-1]),
        lessons=learned,
        settings=settings.model_dump(mode="json", include={"objective", "learner", "judge", "gateway"}),
    )
    report.write(written, out)
    display.summary(written, out)
    return written


def announce(console: Console, chosen: Chosen, *, title: str) -> None:
    """Say in which settings the demo goes another way than the recipe it was asked for."""
    if not chosen.overrides:
        return
    console.print(f"[bold]{title}[/bold], as published but for what a tiny model needs:")
    for each in chosen.overrides:
        console.print(f"  {each.name}: {each.published} -> {each.here}", highlight=False)


def _make_fresh(home: Path) -> None:
    """The demo's own home, without what an earlier run left there."""
    if (home / "store.db").exists():
        shutil.rmtree(home)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
