"""`afterwit demo`: people use an agent on the real system; what it learns is measured and written down."""

import shutil
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from openai import OpenAI
from rich.console import Console

from afterwit.apps import config
from afterwit.apps.demo import report
from afterwit.apps.demo.agent import SIDE, Agent, calls
from afterwit.apps.demo.evaluate import Score, evaluate, held_out
from afterwit.apps.demo.live import Live, live
from afterwit.apps.demo.person import Interaction, run_interaction
from afterwit.apps.demo.report import Lesson, Point, Report
from afterwit.apps.demo.tools.world import ToolsWorld
from afterwit.apps.demo.world import Split, Task, World
from afterwit.core.errors import SettingError
from afterwit.store.rows import Record

HERE = Path(__file__).parent
MODEL, RECIPE = HERE / "model", HERE / "recipe.toml"
WORLDS: Mapping[str, World] = {"tools": ToolsWorld()}
JUDGES = {"model": "the base model itself", "rules": "rules over the text"}
SPLIT: Split = "fresh"
HELD_OUT, EVALUATION_SEED = 84, 20_000
MEASURED = (12, 24, 36, 60, 96, 150, 225, 300, 400, 500)
MEANT = {"complaint": -1, "failure": -1, "approval": 1}


@dataclass(slots=True, kw_only=True)
class Course:
    """What has happened so far."""

    began: float
    interactions: list[Interaction] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)


def run(
    *, world: str, objective: str | None, interactions: int, seed: int, out: Path, judge: str | None
) -> None:
    """Play the demo and leave its report in `out`. Raises SettingError for a choice that is not there."""
    began, recipe = time.monotonic(), tomllib.loads(RECIPE.read_text())
    own = recipe.pop("demo")
    chosen = judge or own["judge"]
    place = _choice("--world", world, WORLDS)
    _choice("--judge", chosen, JUDGES)
    home = _fresh_home(out)
    direct = {"model": str(MODEL), "serve.port": 0, "objective.objective": objective}
    settings = config.load(home=home, direct=direct, below=recipe)
    course = Course(began=began)
    with live(settings, home, rules=chosen == "rules") as system:
        _play(system, place, course, interactions, seed, Console())
        records = {turn: _record(system, turn) for one in course.interactions for turn in one.turns}
    written = Report(
        world=world,
        seed=seed,
        objective=settings.objective.objective,
        judge=JUDGES[chosen],
        judge_accuracy=accuracy(course.interactions, records),
        interactions=len(course.interactions),
        seconds=time.monotonic() - began,
        points=tuple(course.points),
        sides=report.compare(course.scores[0], course.scores[-1]),
        lessons=tuple(lessons(course.interactions, records)),
        settings=recipe,
    )
    report.write(written, out)
    Console().print(f"report: {out / 'report.html'}, {out / 'report.json'}, {out / 'learning.png'}")


def accuracy(seen: Sequence[Interaction], records: Mapping[str, Record]) -> float | None:
    """The share of reactions whose verdict has the sign that was meant, and a hint iff it was a complaint."""
    judged = [(one, records[one.turns[-1]].verdict) for one in seen]
    right = [
        verdict.reward == MEANT[one.mood] and bool(verdict.hints) == (one.mood == "complaint")
        for one, verdict in judged
        if verdict is not None
    ]
    return sum(right) / len(right) if right else None


def lessons(seen: Sequence[Interaction], records: Mapping[str, Record]) -> list[Lesson]:
    """The conversations that a version was trained on."""
    found = []
    for number, one in enumerate(seen, start=1):
        for turn in one.turns:
            record = records[turn]
            if not record.trained_in:
                continue
            made = [f"{call.name} {call.arguments}" for call in record.turn.message.tool_calls]
            hints = record.verdict.hints if record.verdict else ()
            found.append(
                Lesson(
                    interaction=number,
                    request=one.task.request,
                    response="\n".join(made) or record.turn.message.content or "",
                    reaction=one.reaction,
                    hint=hints[0] if hints else None,
                    version=record.trained_in[0],
                )
            )
    return found


def _play(system: Live, world: World, course: Course, interactions: int, seed: int, console: Console) -> None:
    rng, tasks = Random(seed), held_out(world, SPLIT, HELD_OUT, EVALUATION_SEED)
    client = OpenAI(
        base_url=f"{system.url.removesuffix('/v1')}/v1", api_key="demo", timeout=120, max_retries=0
    )
    _measure(system, client, world, tasks, course, console)
    for number in range(1, interactions + 1):
        agent = Agent(client=client, model="afterwit", headers={"X-Session-Id": f"person-{seed}-{number}"})
        one = run_interaction(agent, world, world.task(SPLIT, rng), SPLIT, rng)
        course.interactions.append(one)
        console.print(f"[dim]{number:4}[/dim] {_glance(one)}", highlight=False)
        system.settle()
        if number in MEASURED or number == interactions:
            _measure(system, client, world, tasks, course, console)


def _measure(
    system: Live, client: OpenAI, world: World, tasks: Sequence[Task], course: Course, console: Console
) -> None:
    score = evaluate(Agent(client=client, model="afterwit", headers=SIDE), world, tasks)
    point = Point(
        interactions=len(course.interactions),
        seconds=round(time.monotonic() - course.began, 1),
        preference=score.preference,
        task_success=score.task_success,
    )
    course.points.append(point)
    course.scores.append(score)
    console.print(
        f"[bold]after {point.interactions} interactions, {point.seconds:.0f} s, version {system.version()}: "
        f"preference {point.preference:.2f}, task success {point.task_success:.2f}[/bold]",
        highlight=False,
    )


def _glance(one: Interaction) -> str:
    first = next((call for message in one.messages for call in calls(message)), None)
    did = f"{first.name}" if first else "nothing"
    return f"{one.task.request[:60]:60} [cyan]{did:6}[/cyan] [italic]{one.reaction[:60]}[/italic]"


def _record(system: Live, turn: str) -> Record:
    return system.store(lambda store: store.turn(turn))


def _choice(flag: str, name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise SettingError(f"{flag} {name}: known are {', '.join(known)}")
    return known[name]


def _fresh_home(out: Path) -> Path:
    """The demo's own home in `out`, without what an earlier run left there."""
    home = out / "home"
    if (home / "store.db").exists():
        shutil.rmtree(home)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return home
