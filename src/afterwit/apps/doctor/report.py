"""All self-tests, printed as they end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from afterwit.apps import build
from afterwit.apps.config import Settings
from afterwit.apps.doctor.finding import Finding
from afterwit.apps.model import model_folder


def report(settings: Settings, home: Path) -> bool:
    """Print every finding; whether all is well."""
    console = Console()
    findings = []
    with console.status("testing"):
        for finding in findings_of(settings, home):
            findings.append(finding)
            sign = "[green]ok[/]  " if finding.ok else "[red]FAIL[/]"
            console.print(f"{sign} [bold]{finding.name}[/]: {escape(finding.seen)}", highlight=False)
            if finding.remedy and not finding.ok:
                console.print(f"     {escape(finding.remedy)}", style="yellow", highlight=False)
    faults = sum(not finding.ok for finding in findings)
    console.print(f"{len(findings)} self-tests, {faults} with a fault" if faults else "all is well")
    return not faults


def findings_of(settings: Settings, home: Path) -> Iterator[Finding]:
    """Every self-test, cheapest first. SettingError where there is no model to test."""
    from afterwit.apps.doctor import checkpoints, machine, model, store

    folder = model_folder(settings.model, home)
    yield from machine.check(settings, home, folder)
    versions = build.versions_of(home, folder)
    yield from checkpoints.check(versions)
    files = list(model.check(folder, versions, settings.judge.placement))
    yield from files
    yield from store.check(settings, home, folder)
    if all(finding.ok for finding in files):
        yield from _loaded(settings, home, folder)


def _loaded(settings: Settings, home: Path, folder: Path) -> Iterator[Finding]:
    """The tests that need the model in memory, once for the learner and once for the engine."""
    from afterwit.apps.doctor import engine, mathematics
    from afterwit.wire.model_text.render import Renderer

    renderer = Renderer.load(folder)
    policy = build.base_policy(settings, home, folder)
    yield from mathematics.check(policy.model, renderer, settings.judge.placement)
    yield from engine.check(build.engine_of(settings, folder), policy, renderer, folder)
