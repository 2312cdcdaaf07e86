"""`afterwit demo`: people use an agent on the real system; what it learns is measured and written down."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from afterwit.demo.asked import Asked
from afterwit.demo.display import Display
from afterwit.demo.live import Run, judge_accuracy, live
from afterwit.demo.people import MEASURE, PEOPLE, SEED, Manner, held_out
from afterwit.demo.report import (
    Conversation,
    Decision,
    Report,
    compared,
    conversations_of,
    examples,
    rules_learned,
    write,
    write_compared,
)
from afterwit.demo.settings import JUDGES, Chosen, config_text
from afterwit.demo.worlds import world_named
from afterwit.engines.server.settings import ServerSettings
from afterwit.running.engine_process import EngineProcess
from afterwit.running.logs import quiet
from afterwit.running.up import engine_process

HELD_OUT = 100


def run(asked: Asked) -> Report:
    """Play the demo and leave its report in `out`. Raises SettingError for a choice that is not there."""
    began = time.monotonic()
    quiet()
    chosen = asked.chosen()
    _write_home(asked.home, chosen)
    announce(Console(), chosen, title=asked.recipe or "serve's own settings")
    world = world_named(asked.world)
    rules = world.judge if chosen.judge == "rules" else None
    server = _server(chosen, asked.home) if asked.engine_url is None else None
    with live(chosen.settings, asked.home, rules=rules, server=server) as system:
        with Display(Console(), asked.interactions) as display:
            played = Run(
                system=system,
                world=world,
                split=PEOPLE,
                manner=Manner(asked.people),
                held_out=held_out(world, MEASURE, HELD_OUT, SEED + asked.seed),
                seed=asked.seed,
                measured=asked.measured_after,
                began=began,
                observer=display,
            )
            played.play(asked.interactions)
        talks = conversations_of(system, world, played.interactions)
        versions = system.store(lambda store: sum(row.trained > 0 for row in store.versions()))
    written = _report(chosen, played, talks, versions, began)
    write(written, asked.out)
    display.summary(written, asked.out)
    return written


def _server(chosen: Chosen, home: Path) -> EngineProcess | None:
    """The server that the demo starts for itself; None if its engine needs none."""
    if not isinstance(chosen.settings.engine, ServerSettings):
        return None
    Console().print(f"starting a {chosen.settings.engine.kind} server; its log is in {home}", highlight=False)
    return engine_process(chosen.settings, home)


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
    """Say in which settings the demo goes another way than the recipe it was asked for."""
    if not chosen.overrides:
        return
    console.print(f"[bold]{title}[/bold], but for what a tiny model needs:")
    for each in chosen.overrides:
        console.print(f"  {each.name}: {each.published} -> {each.here}", highlight=False)


def _write_home(home: Path, chosen: Chosen) -> None:
    """The demo's own home, without what an earlier run left there."""
    if (home / "store.db").exists():
        Console().print(f"replacing what an earlier demo left in {home}; --out keeps both", highlight=False)
        shutil.rmtree(home)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "config.toml").write_text(config_text(chosen.settings), encoding="utf-8")


INTERACTIONS = 60


MEASURED = (12, 24, 36, 48, 60)


RUIN = ("objective.beta=0", "learner.lr=1.2e-3")
"""No pull to the reference, and thrice the rate that the demo's models learn well at."""


UNGUARDED = ("promotion.enabled=false", "judge.pay_repeats=true")
"""Nothing is held or taken back, and calls that are made again earn their votes."""


def ruin(
    *, world: str, interactions: int | None, seed: int, out: Path, judge: str | None, pairs: Sequence[str]
) -> tuple[Report, Report]:
    """Both reports, promotion's first. They are in `out/guarded` and `out/unguarded`, beside `ruin.html`.

    The people and their tasks are the same. The judge is the rules', so that only the rate is wrong.
    """
    console, reports = Console(), []
    for name, off in (("guarded", ()), ("unguarded", UNGUARDED)):
        console.print(f"[bold]{name}[/bold]: {', '.join((*RUIN, *off, *pairs))}", highlight=False)
        asked = Asked(
            world=world,
            interactions=INTERACTIONS if interactions is None else interactions,
            seed=seed,
            out=out / name,
            judge=judge or "rules",
            pairs=(*RUIN, *off, *pairs),
            measured=MEASURED,
        )
        reports.append(run(asked))
    guarded, unguarded = reports
    write_compared(guarded, unguarded, out / "ruin.html", settings=(*RUIN, *pairs), without=UNGUARDED)
    console.print(compared(guarded, unguarded))
    console.print(f"side by side: {out / 'ruin.html'}", highlight=False)
    return guarded, unguarded
