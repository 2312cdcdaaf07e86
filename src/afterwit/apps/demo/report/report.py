"""What a run of the demo leaves behind: report.json, learning.png and a page that shows both with the
answers.
"""

import base64
import dataclasses
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from afterwit.apps.demo.live import Measurement
from afterwit.apps.demo.people import Score, calls
from afterwit.apps.demo.report.plot import draw
from afterwit.apps.demo.world import Message

_PAGE = Path(__file__).with_name("report.html")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What one conversation taught: what was asked, done and said, the hint made of it, the version it
    went into.
    """

    interaction: int
    request: str
    response: str
    reaction: str
    hint: str | None
    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The same held-out task before and after."""

    request: str
    before: str
    after: str
    kept_before: bool
    kept_after: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything the files are made of.

    `kept_when` and `passed_when` say what the two shares count.
    `judge_accuracy` is the share of this run's reactions that the judge read right, `judge_accuracies` its
    shares on held-out cases by question and kind of case.
    """

    world: str
    kept_when: str
    passed_when: str
    seed: int
    objective: str
    judge: str
    judge_accuracy: float | None
    interactions: int
    seconds: float
    points: tuple[Measurement, ...]
    sides: tuple[Sides, ...]
    lessons: tuple[Lesson, ...]
    settings: Mapping[str, Any]
    judge_accuracies: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.points) < 2:
            raise ValueError(f"{len(self.points)} measurements: a report compares before with after")

    def facts(self) -> dict[str, Any]:
        """report.json."""
        first, last = self.points[0], self.points[-1]
        return {
            "preference_before": first.preference,
            "preference_after": last.preference,
            "task_success_before": first.task_success,
            "task_success_after": last.task_success,
            "interactions": self.interactions,
            "seconds": round(self.seconds, 1),
            "objective": self.objective,
            "judge": self.judge,
            "judge_accuracy": self.judge_accuracy,
            "judge_accuracies": dict(self.judge_accuracies),
            "seed": self.seed,
            "world": self.world,
            "curve": [dataclasses.asdict(point) for point in self.points],
            "settings": dict(self.settings),
            "lessons": [dataclasses.asdict(lesson) for lesson in self.lessons],
            "answers": [dataclasses.asdict(side) for side in self.sides],
        }


def write(report: Report, out: Path) -> None:
    """Write the three files into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(report.facts(), indent=2) + "\n", encoding="utf-8")
    draw(
        [dataclasses.astuple(point) for point in report.points], f"{report.world} world", out / "learning.png"
    )
    picture = base64.b64encode((out / "learning.png").read_bytes()).decode()
    (out / "report.html").write_text(page(report, picture), encoding="utf-8")


def compare(before: Score, after: Score, number: int = 8) -> tuple[Sides, ...]:
    """Held-out tasks side by side, one of every kind first."""
    pairs = list(zip(before.trials, after.trials, strict=True))
    firsts = {old.task.kind: (old, new) for old, new in reversed(pairs)}
    chosen = [*firsts.values(), *(pair for pair in pairs if pair not in firsts.values())][:number]
    return tuple(
        Sides(
            request=old.task.request,
            before=transcript(old.messages),
            after=transcript(new.messages),
            kept_before=old.kept,
            kept_after=new.kept,
        )
        for old, new in chosen
    )


def transcript(messages: Sequence[Message]) -> str:
    """What an agent did after the request, a line for every call, its result and every text."""
    lines = []
    for message in messages[2:]:
        lines += [f"{call.name} {call.arguments}" for call in calls(message)]
        mark = {"tool": "  -> ", "user": "person: "}.get(message["role"], "")
        lines += [mark + message["content"]] if message.get("content") else []
    return "\n".join(lines)


def page(report: Report, picture: str) -> str:
    """The HTML page, whole in one file; every text from a conversation is escaped."""
    facts = report.facts()
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(
        title=html.escape(f"Afterwit demo: {report.world} world"),
        before=f"{facts['preference_before']:.2f}",
        after=f"{facts['preference_after']:.2f}",
        success_before=f"{facts['task_success_before']:.2f}",
        success_after=f"{facts['task_success_after']:.2f}",
        kept_when=html.escape(report.kept_when),
        passed_when=html.escape(report.passed_when),
        interactions=report.interactions,
        seconds=f"{report.seconds:.0f}",
        picture=picture,
        judge=html.escape(
            report.judge + (f", right in {report.judge_accuracy:.0%}" if report.judge_accuracy else "")
        ),
        objective=html.escape(report.objective),
        sides="\n".join(map(_side, report.sides)),
        lessons="\n".join(map(_lesson, report.lessons)),
        settings=html.escape(json.dumps(dict(report.settings), indent=2)),
    )


def _side(side: Sides) -> str:
    mark = {True: "kept", False: "broken"}
    cells = "".join(
        f'<td class="{mark[kept]}"><b>rules {mark[kept]}</b><pre>{html.escape(text)}</pre></td>'
        for kept, text in ((side.kept_before, side.before), (side.kept_after, side.after))
    )
    return f"<tr><td>{html.escape(side.request)}</td>{cells}</tr>"


def _lesson(lesson: Lesson) -> str:
    cells = (
        lesson.interaction,
        lesson.request,
        lesson.response,
        lesson.reaction,
        lesson.hint or "-",
        "-" if lesson.version is None else lesson.version,
    )
    return "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>"
