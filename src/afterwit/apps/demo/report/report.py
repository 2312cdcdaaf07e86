"""What a run of the demo leaves behind: report.json, learning.png and report.html."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from afterwit.apps.demo.live import Measurement
from afterwit.apps.demo.report.before_after import Example, RuleLearned
from afterwit.apps.demo.report.conversations import Conversation
from afterwit.apps.demo.report.page import page
from afterwit.apps.demo.report.plot import draw
from afterwit.core.promotion import EventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A hold, an alarm or a confirmation, and after how many conversations it came."""

    after: int
    kind: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything the files are made of. `kept_when` and `passed_when` say what the two shares count."""

    world: str
    kept_when: str
    passed_when: str
    seed: int
    objective: str
    judge: str
    judge_accuracy: float | None
    """The judge's share of right answers on held-out cases."""
    interactions: int
    seconds: float
    points: tuple[Measurement, ...]
    rules: tuple[RuleLearned, ...]
    examples: tuple[Example, ...]
    conversations: tuple[Conversation, ...]
    settings: Mapping[str, Any]
    versions: int = 0
    """Updates that became versions."""
    decisions: tuple[Decision, ...] = ()
    """What was decided about them, oldest first."""
    judge_accuracies: Mapping[str, float] = field(default_factory=dict)
    """The same by question and kind of case."""

    def __post_init__(self) -> None:
        if len(self.points) < 2:
            raise ValueError(f"{len(self.points)} measurements: a report compares before with after")

    def facts(self) -> dict[str, Any]:
        """report.json."""
        first, last = self.points[0], self.points[-1]
        whole = dataclasses.asdict(self)
        curve = whole.pop("points")
        return {
            "preference_before": first.preference,
            "preference_after": last.preference,
            "task_success_before": first.task_success,
            "task_success_after": last.task_success,
            **whole,
            "seconds": round(self.seconds, 1),
            "curve": curve,
            "held": self.count(EventKind.HOLD),
            "alarms": self.count(EventKind.ALARM),
            "taught": sum(bool(each.trained) for each in self.conversations),
            "turns": sum(len(each.trained) for each in self.conversations),
        }

    def count(self, kind: EventKind) -> int:
        """How often that was decided."""
        return sum(each.kind == kind for each in self.decisions)


def write(report: Report, out: Path) -> None:
    """Write the three files into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    facts = report.facts()
    (out / "report.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    draw(
        [dataclasses.astuple(point) for point in report.points], f"{report.world} world", out / "learning.png"
    )
    (out / "report.html").write_text(page(facts), encoding="utf-8")
