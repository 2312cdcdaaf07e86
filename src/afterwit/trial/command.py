"""`afterwit trial`: people talk with a model on the real system, and held-out questions measure it."""

from __future__ import annotations

import logging
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from afterwit.chat_format.render import Renderer
from afterwit.config import Settings, load
from afterwit.demo.live import LiveSystem, live_home, refuse_file
from afterwit.demo.pages import measurements
from afterwit.demo.settings import changed
from afterwit.errors import SettingError
from afterwit.home.home import STORE
from afterwit.home.model import model_folder
from afterwit.practice.table import lessons
from afterwit.printing.terminal import Terminal
from afterwit.running.logs import set_up
from afterwit.trial.people import Person, competent_judge, names, read_problems
from afterwit.trial.play import Played, Trial
from afterwit.trial.report import Learning, write

STATE = "trial.json"
"""The file in OUT with all that was found, from which the next run goes on."""
JUDGES = ("model", "rules")
KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of the command."""

    minutes: float
    conversations: int
    preference: str | None
    judge: str
    problems: Path | None
    seed: int

    def __post_init__(self) -> None:
        if self.judge not in JUDGES:
            raise SettingError(f"--judge {self.judge}: it must be one of {', '.join(JUDGES)}")
        if not self.minutes > 0 or self.conversations < 1:  # NaN is not above 0
            raise SettingError("--minutes and --conversations must be above 0")


def run(
    asked: Asked,
    *,
    out: Path,
    pairs: Sequence[str] = (),
    file: Path | None = None,
    recipe: str | None = None,
    direct: Mapping[str, Any],
) -> bool:
    """Play the trial and leave its report in `out`; whether the model learned.

    `pairs`, `file`, `recipe` and `direct` are settings as `serve` takes them. SettingError for an unknown
    choice, or if `out` holds a trial of another model or other settings.
    """
    refuse_file(out)
    began, console, home = time.monotonic(), Terminal(), out / "home"
    set_up(logging.ERROR)
    settings = load(home=home, file=file, pairs=pairs, recipe=recipe, direct={**direct, "serve.port": 0})
    folder = model_folder(settings.model, home)
    renderer = Renderer.load(folder, tool_call_parser=settings.gateway.tool_call_parser)
    candidates = _candidates(asked, renderer)
    played = _begun(out, identity=_identity(asked, settings, folder))
    rules = competent_judge(candidates) if asked.judge == "rules" else None
    with live_home(
        settings,
        home,
        rules=rules,
        own_server=not direct.get("engine.url"),
        stopped="stopped; the same command continues from the last measurement",
    ) as (system, line):
        trial = Trial(
            system=system,
            played=played,
            candidates=candidates,
            renderer=renderer,
            own_words=rules is None and _reads_own_words(system),
            until=began + 60 * asked.minutes,
            began=began - played.seconds,
            path=out / STATE,
            step=line.step,
        )
        person = _play(trial, asked.conversations, console)
        learning, practised = _learning(system), system.store(lessons)
    found = write(played, person, _with_memory(learning), practised, changed(settings), out)
    rows = ((p.conversations, p.kept / p.of, f"{p.seconds:.0f}") for p in played.points)
    console.print(measurements(("conversations", "as the person likes it", "seconds"), rows))
    console.say(found.sentence, style="bold green" if found.learned else "bold red")
    console.say(
        f"report: {out}/report.html; what it learned, from which words: `afterwit lessons --home {home}`"
    )
    return found.learned


def _play(trial: Trial, most: int, console: Terminal) -> Person | None:
    """The trial from the choice of a preference to the last measurement; the person, None without one."""
    if trial.played.talks:
        console.say(f"continuing after {len(trial.played.talks)} conversations, kept in {trial.path}")
    person = trial.choose()
    for lesson in trial.played.lessons:
        console.say(
            f"{lesson.wants}: by itself {lesson.alone} of {lesson.of}, with the instruction {lesson.told}"
            f"{'; taught now' if lesson.preference == trial.played.preference else ''}"
        )
    if person is None:
        return None
    for number, point in enumerate(trial.rounds(person, most)):
        if number == 0:
            share = (trial.played.ceiling or 0) / point.of
            console.say(
                f"with the instruction in its prompt it reaches {share:.2f} of the held-out questions"
            )
        moved = "" if point.kl is None else f"; {point.kl:.3f} nats a token from the original model"
        console.say(
            f"{point.seconds:6.0f} s  after {point.conversations:3d} conversations, version {point.version}: "
            f"{point.kept / point.of:.2f} of held-out answers as the person likes them{moved}"
        )
    return person


def _candidates(asked: Asked, renderer: Renderer) -> list[Person]:
    problems = [] if asked.problems is None else read_problems(asked.problems)
    known = names(tools=renderer.convention.name != "none", problems=bool(problems))
    if asked.preference is not None and asked.preference not in known:
        raise SettingError(f"--preference {asked.preference}: it must be one of {', '.join(known)}")
    chosen = known if asked.preference is None else [asked.preference]
    return [Person(preference=name, seed=asked.seed, problems=problems) for name in chosen]


def _identity(asked: Asked, settings: Settings, folder: Path) -> dict[str, Any]:
    """The settings that a run shares with the one that it continues."""
    judge = settings.judge
    judged_by = "the model itself" if judge.url is None else f"{judge.model} at {judge.url}"
    return {
        "model": settings.model or folder.name,
        "seed": asked.seed,
        "judge": "a program that understands the person's words" if asked.judge == "rules" else judged_by,
        "settings": {name: str(value) for name, value in changed(settings).items()},
        "asked": asked.preference,
    }


def _begun(out: Path, *, identity: dict[str, Any]) -> Played:
    """The earlier run of the same trial in `out`, or a new one."""
    path = out / STATE
    if not path.exists():
        if (out / "home" / STORE).exists():
            raise SettingError(f"{out / 'home'} holds the home of something else: choose another --out")
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Played(identity=identity)
    try:
        played = Played.read(path)
    except ValidationError as error:
        fault = error.errors()[0]["msg"]
        raise SettingError(
            f"{path} cannot be read ({fault}): choose another --out, or delete {out}"
        ) from error
    for name, value in identity.items():
        if played.identity.get(name) != value:
            raise SettingError(
                f"{out} holds a trial whose {name} is {played.identity.get(name)}, not {value}: choose"
                f" another --out, or delete {out}"
            )
    return played


def _reads_own_words(system: LiveSystem) -> bool:
    """Whether this judge writes no hints, so that the person's words are the hints."""
    examiner = system.runtime.examiner
    if examiner is None:
        return False
    ability = system.wait(examiner.ability())
    return not ability.hints


def _learning(system: LiveSystem) -> Learning:
    rows, stages = system.store(lambda store: (store.versions(), store.statuses()))
    metrics = [row.metrics for row in rows if row.trained]
    ways = [each["way_to_teacher"] for each in metrics if "way_to_teacher" in each]
    return Learning(
        versions=len(metrics),
        seconds=sum(value for each in metrics for name, value in each.items() if name.startswith("seconds_")),
        tokens=int(sum(each.get("tokens", 0) for each in metrics)),
        memory_mib=None,
        troubles=[f"{stage.name}: {stage.message}" for stage in stages if not stage.ok],
        way=fmean(ways) if ways else None,
    )


def _with_memory(learning: Learning) -> Learning:
    """With the most memory that a child of this process held: the learner is one, and it has ended."""
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    mib = most / KIB / (KIB if sys.platform == "darwin" else 1)
    return replace(learning, memory_mib=mib or None)
