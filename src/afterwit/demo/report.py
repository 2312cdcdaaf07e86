"""The report of a run: report.json, learning.svg and report.html."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jinja2
from markupsafe import Markup

from afterwit.demo.chart import Curve, Mark, alone, chart
from afterwit.demo.live import LiveSystem, Measurement
from afterwit.demo.people import Interaction, Score, Trial, calls
from afterwit.demo.world import Message, World
from afterwit.promotion.events import EventKind
from afterwit.store import Record

SHOWN = 6
"""Examples that a report shows."""
Speaker = Literal["person", "agent", "tool"]

_SPEAKERS: dict[str, Speaker] = {"user": "person", "assistant": "agent", "tool": "tool"}
_PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A hold, an alarm or a confirmation."""

    after: int
    """Conversations before it."""
    kind: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The content of the files."""

    world: str
    kept_when: str
    """The meaning of preference."""
    passed_when: str
    """The meaning of task success."""
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
    """Decisions about versions, oldest first."""
    judge_accuracies: Mapping[str, float] = field(default_factory=dict)
    """The same by question and kind of case."""

    def __post_init__(self) -> None:
        if len(self.points) < 2:
            raise ValueError(f"{len(self.points)} measurements: a report compares before with after")

    def facts(self) -> dict[str, Any]:
        """The content of report.json."""
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
    (out / "learning.svg").write_text(alone(_picture(facts)), encoding="utf-8")
    (out / "report.html").write_text(page(facts), encoding="utf-8")


def page(facts: Mapping[str, Any]) -> str:
    """report.html. Every text in it is escaped, but for the pictures."""
    pictured = {
        "picture": Markup(_picture(facts)),
        "rules": [rule | {"picture": Markup(_rule_picture(rule, facts))} for rule in facts["rules"]],
        "settings": json.dumps(facts["settings"], indent=2),
    }
    return _PAGES.get_template("report.html").render({**facts, **pictured})


def _picture(facts: Mapping[str, Any]) -> str:
    shares = (("task success", "success", "task_success"), ("preference", "preference", "preference"))
    curves = [
        Curve(
            name=name, style=style, points=[(point["interactions"], point[key]) for point in facts["curve"]]
        )
        for name, style, key in shares
    ]
    marks = [
        Mark(after=each["after"], style=each["kind"], words=each["words"])
        for each in facts["decisions"]
        if each["kind"] != "confirm"
    ]
    label = f"preference and task success over {facts['interactions']} tasks of people"
    return chart(curves, width=560, height=230, label=label, marks=marks)


def _rule_picture(rule: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """The share of its tasks in which a rule was not broken; empty if it applied to none."""
    if not rule["tasks"]:
        return ""
    counts = [point["interactions"] for point in facts["curve"]]
    kept = [1 - broken / rule["tasks"] for broken in rule["broken"]]
    curve = Curve(name="kept", style="preference", points=tuple(zip(counts, kept, strict=True)))
    return chart([curve], width=280, height=110, label=f"how often it was kept: {rule['words']}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A held-out task as it was done before and after."""

    request: str
    before: str
    after: str
    kept_before: bool
    kept_after: bool
    passed_before: bool
    passed_after: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLearned:
    """One rule: how many held-out tasks it applies to, in how many it was broken, and who taught it."""

    rule: str
    words: str
    tasks: int
    broken: tuple[int, ...]
    """The number of these tasks that broke it, at each measurement."""
    taught_in: tuple[int, ...]
    """Numbers of the conversations whose hints name it."""
    said: str | None
    """The person's words in the first of these conversations."""


def examples(before: Score, after: Score) -> tuple[Example, ...]:
    """Tasks side by side: first one of every kind that is done right only now, then those still wrong."""
    pairs = list(zip(before.trials, after.trials, strict=True))
    learned = [pair for pair in pairs if not pair[0].kept and pair[1].kept and pair[1].passed]
    firsts = {new.task.kind: (old, new) for old, new in reversed(learned)}
    wrong = [(old, new) for old, new in pairs if not (new.kept and new.passed)]
    chosen = [pair for pair in learned if pair in firsts.values()][: SHOWN - 1]
    return tuple(_example(*pair) for pair in [*chosen, *wrong[: SHOWN - len(chosen)]])


def _example(old: Trial, new: Trial) -> Example:
    return Example(
        request=old.task.request,
        before=transcript(old.messages),
        after=transcript(new.messages),
        kept_before=old.kept,
        kept_after=new.kept,
        passed_before=old.passed,
        passed_after=new.passed,
    )


def rules_learned(
    rules: Mapping[str, str], scores: Sequence[Score], conversations: Sequence[Conversation]
) -> tuple[RuleLearned, ...]:
    """Every rule, in the world's order, over measurements of the same tasks."""
    found = []
    for rule, words in rules.items():
        taught = [each for each in conversations if rule in each.rules]
        applies = [[trial for trial in score.trials if rule in trial.task.rules] for score in scores]
        found.append(
            RuleLearned(
                rule=rule,
                words=words,
                tasks=len(applies[0]),
                broken=tuple(sum(rule in trial.broken for trial in trials) for trials in applies),
                taught_in=tuple(each.number for each in taught),
                said=taught[0].reaction if taught else None,
            )
        )
    return tuple(found)


def transcript(messages: Sequence[Message]) -> str:
    """The agent's work after the request: a line for every call, its result and every text."""
    lines = []
    for message in messages[2:]:
        lines += [f"{call.name} {call.arguments}" for call in calls(message)]
        mark = {"tool": "  -> ", "user": "person: "}.get(message["role"], "")
        lines += [mark + message["content"]] if message.get("content") else []
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict on a turn, and the version that it trained."""

    turn: str
    reward: int | None
    """The judge's tally: -1, 0 or 1. None: it was not judged."""
    hint: str | None
    """The judge's hint from what followed."""
    version: int | None
    """The first version that it trained. None: it trained none."""
    ended: str | None
    """Why it did not train: the store's reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One message of a conversation, with the verdict if it is a turn of the agent that was answered."""

    speaker: Speaker
    text: str
    judged: Judged | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One task from the request to the last word."""

    number: int
    """From 1."""
    request: str
    reaction: str
    """The person's words after the last of the agent's turns."""
    mood: str
    steps: tuple[Step, ...]
    rules: tuple[str, ...]
    """The rules that the hints of its trained turns speak of."""

    @property
    def trained(self) -> tuple[Judged, ...]:
        """Its turns that trained a version."""
        return tuple(step.judged for step in self.steps if step.judged and step.judged.version is not None)


def conversations_of(system: LiveSystem, world: World, seen: Sequence[Interaction]) -> list[Conversation]:
    """Every conversation, in its order."""
    records = system.store(lambda store: [[store.turn(turn) for turn in one.turns] for one in seen])
    pairs = zip(seen, records, strict=True)
    return [_conversation(number, one, world, its) for number, (one, its) in enumerate(pairs, start=1)]


def _conversation(number: int, one: Interaction, world: World, records: Sequence[Record]) -> Conversation:
    steps = tuple(_steps(one.messages, [_judged(record) for record in records]))
    made = [step.judged for step in steps if step.judged]
    hints = [each.hint for each in made if each.hint and each.version is not None]
    named = {rule for hint in hints for rule in world.rules_named_in(hint)}
    return Conversation(
        number=number,
        request=one.task.request,
        reaction=one.reaction,
        mood=one.mood,
        steps=steps,
        rules=tuple(rule for rule in world.rules if rule in named),
    )


def _steps(messages: Sequence[Message], judged: Sequence[Judged]) -> Iterator[Step]:
    """The agent's messages are its turns in order; the last one, which nothing followed, is none."""
    turns = iter(judged)
    for message in messages:
        if message["role"] in _SPEAKERS:
            speaker = _SPEAKERS[message["role"]]
            made = next(turns, None) if speaker == "agent" else None
            yield Step(speaker=speaker, text=in_words(message), judged=made)


def _judged(record: Record) -> Judged:
    verdict, trained = record.verdict, record.trained_in
    return Judged(
        turn=record.turn.id,
        reward=None if verdict is None else verdict.reward,
        hint=verdict.hints[0] if verdict and verdict.hints else None,
        version=trained[0] if trained else None,
        ended=None if trained or record.reason is None else record.reason.value,
    )


def in_words(message: Message) -> str:
    """A message: one line for each call, then its text."""
    made = [f"{call.name} {call.arguments}" for call in calls(message)]
    return "\n".join([*made, message.get("content") or ""]).strip()
