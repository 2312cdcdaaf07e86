"""All self-tests, printed as they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from afterwit import build
from afterwit.checkpoints.shared import SharedVersions
from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings
from afterwit.doctor.finding import Finding, tested
from afterwit.home.home import STORE, store_url
from afterwit.home.model import model_folder
from afterwit.store.open import store_exists


def report(settings: Settings, home: Path) -> bool:
    """Print every finding; returns whether all tests passed."""
    console = Console()
    findings = []
    with console.status("") as status:

        def progress(words: str) -> None:
            status.update(words)
            if not console.is_terminal:
                console.print(f"... {words}")

        for finding in findings_of(settings, home, progress):
            findings.append(finding)
            sign = "[green]ok[/]  " if finding.ok else "[red]FAIL[/]"
            console.print(f"{sign} [bold]{finding.name}[/]: {escape(finding.seen)}", highlight=False)
            if finding.remedy and not finding.ok:
                console.print(f"     {escape(finding.remedy)}", style="yellow", highlight=False)
    faults = sum(not finding.ok for finding in findings)
    console.print(f"{len(findings)} self-tests, {faults} with a fault" if faults else "all is well")
    return not faults


def findings_of(settings: Settings, home: Path, progress: Callable[[str], None]) -> Iterator[Finding]:
    """Every self-test, cheapest first; `progress` hears what is tested next. SettingError without a model."""
    from afterwit.doctor import engine as judge
    from afterwit.doctor import machine, model

    progress("finding the model")
    folder = model_folder(settings.model, home)
    progress("testing the machine")
    yield from machine.check(settings, home, folder)
    progress("testing the model's files and what was learned so far")
    versions = build.versions_of(home, folder, settings.versions)
    yield from check_checkpoints(versions)
    convention = settings.gateway.tool_call_parser
    files = list(model.check(folder, versions, settings.judge.placement, convention))
    yield from files
    progress("testing the store and the judge")
    yield from check_store(settings, home, folder)
    yield from judge.check_judge(settings)
    if all(finding.ok for finding in files):
        yield from _loaded(settings, home, folder, progress)


def _loaded(
    settings: Settings, home: Path, folder: Path, progress: Callable[[str], None]
) -> Iterator[Finding]:
    """The tests that need the model in memory, once for the learner and once for the engine."""
    from afterwit.chat_format.render import Renderer
    from afterwit.doctor import engine, mathematics

    renderer = Renderer.load(folder)
    progress("loading the model as the learner does")
    trainer = build.trainer_of(settings, home, folder)
    progress("testing the mathematics with the weights that are served")
    yield from mathematics.check(trainer, renderer, settings.judge.placement)
    trainer.drop()
    policy = build.base_policy(settings, home, folder)
    progress("loading the model as the engine does, then testing what is sampled, and a change of weights")
    yield from engine.check(build.engine_of(settings, folder), policy, renderer, folder, settings=settings)


def check_checkpoints(versions: Versions) -> Iterator[Finding]:
    """Whether the place that machines share versions at can be used, and every file of every version whose
    weights are on this disk is as the learner wrote it."""
    if isinstance(versions, SharedVersions):
        yield tested(
            "versions.url", partial(_shared, versions), remedy="nothing is learned until this is done"
        )
    for number in filter(versions.on_disk, versions.numbers()):
        yield tested(
            f"version {number}",
            partial(_verified, versions, number),
            remedy="the version is not served, and the learner waits until this is done",
        )


def _shared(versions: SharedVersions) -> str:
    versions.remote.check()
    versions.follow()
    return f"{versions.remote.place} takes, gives and deletes; version {versions.newest()} is the newest"


def _verified(versions: Versions, number: int) -> str:
    versions.verify(number)
    return "its files are as the learner wrote them"


def check_store(settings: Settings, home: Path, folder: Path) -> Iterator[Finding]:
    """Every test of the store, and the stages' last reports."""
    url = store_url(home, settings.store.url)
    if not store_exists(url):
        place = "at store.url" if settings.store.url else home / STORE
        yield Finding(name="store", ok=True, seen=f"none yet; it will be {place}")
    else:
        yield tested(
            "store",
            lambda: _opens(settings, home, folder),
            remedy="choose another --home, or the model it belongs to",
        )
        yield from _stages(home)


def _opens(settings: Settings, home: Path, folder: Path) -> str:
    with closing(build.store_of_model(settings, home, folder)) as store:
        states = ", ".join(f"{state.value} {count}" for state, count in store.counts().states.items())
        return f"{store.size() / 2**20:.1f} MiB; {states or 'no turns yet'}"


def _stages(home: Path) -> Iterator[Finding]:
    with build.store_of_home(home) as store:
        for status in store.statuses():
            yield Finding(
                name=f"stage {status.name}",
                ok=status.ok,
                seen=status.message,
                remedy="" if status.ok else "it tries again by itself; its last words say what it needs",
            )
