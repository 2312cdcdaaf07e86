"""All self-tests, printed as they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from pathlib import Path

from rich.text import Text

from afterwit import build
from afterwit.chat_format.render import Renderer
from afterwit.config import Settings
from afterwit.doctor.finding import Finding
from afterwit.doctor.judge import check_judge, kept_by
from afterwit.doctor.machine import check_machine, check_packages, check_store, check_versions
from afterwit.doctor.model import check_model
from afterwit.home.model import model_folder
from afterwit.judging.ability import Progress, silent
from afterwit.printing.terminal import Terminal, working

STEPS, QUICK = 6, 3
"""The steps of `findings_of`, and those that load no weights."""


def report(settings: Settings, home: Path, *, quick: bool = False) -> bool:
    """Print every finding; returns whether all tests passed."""
    console, steps, of = Terminal(), count(1), QUICK if quick else STEPS
    findings = []
    with working("finding the model", console) as line:

        def begin(words: str) -> None:
            line.step(f"{words} (step {next(steps)} of {of})")

        for finding in findings_of(settings, home, begin, line.step, quick=quick):
            findings.append(finding)
            sign = ("ok   ", "green") if finding.ok else ("FAIL ", "red")
            console.print(Text.assemble(sign, (finding.name, "bold"), f": {finding.seen}"))
            if finding.remedy and not finding.ok:
                console.print(f"     {finding.remedy}", style="yellow")
    faults = sum(not finding.ok for finding in findings)
    console.print(f"{len(findings)} self-tests, {faults} with a fault" if faults else "all is well")
    return not faults


def findings_of(
    settings: Settings,
    home: Path,
    begin: Callable[[str], None],
    progress: Progress = silent,
    *,
    quick: bool = False,
) -> Iterator[Finding]:
    """Every self-test, cheapest first; if `quick`, those that load no weights.

    `begin` gets the next step, `progress` how far the judge's is. SettingError without a model.
    """
    folder = model_folder(settings.model, home)
    begin("testing the machine")
    yield from check_machine(settings, home, folder)
    yield from check_packages()
    begin("testing the model's files and what was learned so far")
    versions = build.versions_of(home, folder, settings.versions)
    yield from check_versions(versions)
    parser, renderer = settings.gateway.tool_call_parser, cache(partial(Renderer.load, folder))
    files = list(check_model(folder, renderer, versions, settings.judge.placement, parser))
    yield from files
    begin("testing the store and the judge")
    yield from check_store(settings, home, folder)
    keep = kept_by(settings, home, folder)
    yield from check_judge(settings, progress, keep)
    if quick or not all(finding.ok for finding in files):
        return
    from afterwit.doctor.engine import check_engine  # these import torch
    from afterwit.doctor.mathematics import check_mathematics
    from afterwit.learning.policy import Policy

    begin("loading the model as the learner does")
    trainer = build.trainer_of(settings, home, folder)
    begin("testing the mathematics with the weights that are served")
    yield from check_mathematics(trainer, renderer(), settings.judge.placement)
    trainer.drop()
    policy = Policy.load(versions, 0, settings.learner)
    begin("loading the model as the engine does, then testing what is sampled, and a change of weights")
    engine = build.engine_of(settings, folder)
    yield from check_engine(engine, policy, renderer(), folder, settings, progress, keep)
