"""The report of a run: report.json, learning.svg and report.html."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from afterwit.demo.live import Measurement
from afterwit.demo.people import Interaction, Score, calls
from afterwit.demo.world import Message, World
from afterwit.promotion.events import EventKind
from afterwit.store import Record

Facts = Mapping[str, Any]
"""Content of report.json, or a part of it."""
Curve = tuple[str, str, Sequence[tuple[int, float]]]
"""Its name, the class that gives it its colour, and its points: conversations, ascending, and a share."""
SHOWN = 6
LEFT, RIGHT, TOP, BOTTOM = 30, 34, 10, 20
"""Margins in the picture's units, for the labels."""
LINE = 12.0
STYLE = """
text { font: 11px sans-serif; fill: #5c6670; } .middle { text-anchor: middle; } .end { text-anchor: end; }
.grid { stroke: #d5dbe1; } polyline { fill: none; stroke-width: 2.5; }
.preference { stroke: #1663b8; } .success { stroke: #5c6670; }
.hold, .alarm { stroke: #8a5a00; stroke-width: 3; }
circle.preference { fill: #1663b8; } circle.success { fill: #5c6670; }
text.preference { fill: #1663b8; stroke: none; } text.success { stroke: none; }
"""
"""Of a picture that stands alone."""
_SPEAKERS = {"user": "person", "assistant": "agent", "tool": "tool"}
_PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def summary(
    points: Sequence[Measurement], conversations: Sequence[Facts], decisions: Sequence[Facts]
) -> dict[str, Any]:
    """The part of report.json that follows from the rest: before and after, and how much was taught."""
    if len(points) < 2:
        raise ValueError(f"{len(points)} measurements: a report compares before with after")
    first, last = points[0], points[-1]
    trained = [_trained(each) for each in conversations]
    return {
        "preference_before": first.preference,
        "preference_after": last.preference,
        "task_success_before": first.task_success,
        "task_success_after": last.task_success,
        "conversations": list(conversations),
        "decisions": list(decisions),
        "held": sum(each["kind"] == EventKind.HOLD for each in decisions),
        "alarms": sum(each["kind"] == EventKind.ALARM for each in decisions),
        "taught": sum(map(bool, trained)),
        "turns": sum(map(len, trained)),
    }


def write(facts: Facts, out: Path) -> None:
    """Write the three files into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    alone = '<svg xmlns="http://www.w3.org/2000/svg" '
    picture = _picture(facts).replace("<svg ", alone, 1).replace(">", f"><style>{STYLE}</style>", 1)
    (out / "report.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    (out / "learning.svg").write_text(picture, encoding="utf-8")
    (out / "report.html").write_text(page(facts), encoding="utf-8")


def page(facts: Facts) -> str:
    """report.html. Every text in it is escaped, but for the pictures."""
    pictured = {
        "picture": Markup(_picture(facts)),
        "rules": [rule | {"picture": Markup(_rule_picture(rule, facts))} for rule in facts["rules"]],
        "settings": json.dumps(facts["settings"], indent=2),
    }
    return template("report").render({**facts, **pictured})


def template(name: str) -> jinja2.Template:
    """The page of that name. Every value that it shows is escaped, but for `Markup`."""
    return _PAGES.get_template(f"{name}.html")


def _picture(facts: Facts) -> str:
    curves: list[Curve] = []
    for name, style in (("task success", "success"), ("preference", "preference")):
        points = [(each["interactions"], each[name.replace(" ", "_")]) for each in facts["curve"]]
        curves.append((name, style, points))
    marks = [each for each in facts["decisions"] if each["kind"] != "confirm"]
    label = f"preference and task success over {facts['interactions']} tasks of people"
    return chart(curves, width=560, height=230, label=label, marks=marks)


def _rule_picture(rule: Facts, facts: Facts) -> str:
    """The share of its tasks in which a rule was not broken; empty if it applied to none."""
    if not rule["tasks"]:
        return ""
    points = [
        (each["interactions"], 1 - broken / rule["tasks"])
        for each, broken in zip(facts["curve"], rule["broken"], strict=True)
    ]
    label = f"how often it was kept: {rule['words']}"
    return chart([("kept", "preference", points)], width=280, height=110, label=label)


def chart(
    curves: Sequence[Curve], *, width: int, height: int, label: str, marks: Sequence[Facts] = ()
) -> str:
    """Shares over the number of conversations as SVG, in the colours of the page that holds it.

    `label` replaces it for readers that cannot see; `marks` are decisions.
    """
    most = max(at for *_, points in curves for at, _ in points) or 1

    def x(at: float) -> float:
        return round(LEFT + (width - LEFT - RIGHT) * at / most, 1)

    def y(share: float) -> float:
        return round(TOP + (height - TOP - BOTTOM) * (1 - share), 1)

    drawn: list[str] = []
    for share in (0, 0.5, 1):
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y(share)}" y2="{y(share)}"/>')
        drawn.append(f'<text class="end" x="{LEFT - 5}" y="{y(share) + 4}">{share:g}</text>')
    labelled: list[int] = []
    for at in sorted((at for at, _ in curves[0][2]), reverse=True):
        if not labelled or labelled[-1] - at >= most / 9:  # room for a label, the last one's first
            labelled.append(at)
            drawn.append(f'<text class="middle" x="{x(at)}" y="{height - 4}">{at}</text>')
    for mark in marks:
        place = f'x1="{x(mark["after"])}" x2="{x(mark["after"])}" y1="{TOP}" y2="{height - BOTTOM}"'
        title = f"<title>{escape(mark['words'])}</title>"
        drawn.append(f'<line class="{mark["kind"]}" {place}>{title}</line>')
    for name, style, points in curves:
        line = " ".join(f"{x(at)},{y(share)}" for at, share in points)
        drawn.append(f'<polyline class="{style}" points="{line}"/>')
        for at, share in points:
            title = f"<title>{escape(f'{name} after {at}: {share:.2f}')}</title>"
            drawn.append(f'<circle class="{style}" cx="{x(at)}" cy="{y(share)}" r="3">{title}</circle>')
    level = 0.0
    for end, style, share in sorted((y(points[-1][1]), style, points[-1][1]) for _, style, points in curves):
        level = max(end, level + LINE) if level else end  # no label over another
        place = f'x="{width - RIGHT + 6}" y="{level + 4}"'
        drawn.append(f'<text class="{style}" {place}>{share:.2f}</text>')
    size = f'viewBox="0 0 {width} {height}" style="max-width:{1.5 * width:.0f}px"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">{"".join(drawn)}</svg>'


def examples(before: Score, after: Score) -> list[dict[str, Any]]:
    """Tasks side by side: first one of every kind that is done right only now, then those still wrong."""
    pairs = list(zip(before.trials, after.trials, strict=True))
    learned = [pair for pair in pairs if not pair[0].kept and pair[1].kept and pair[1].passed]
    firsts = {new.task.kind: (old, new) for old, new in reversed(learned)}
    wrong = [(old, new) for old, new in pairs if not (new.kept and new.passed)]
    chosen = [pair for pair in learned if pair in firsts.values()][: SHOWN - 1]

    def side(trial: Interaction, when: str) -> dict[str, Any]:
        return {when: transcript(trial.messages), f"kept_{when}": trial.kept, f"passed_{when}": trial.passed}

    return [
        {"request": old.task.request, **side(old, "before"), **side(new, "after")}
        for old, new in [*chosen, *wrong[: SHOWN - len(chosen)]]
    ]


def rules_learned(
    rules: Mapping[str, str], scores: Sequence[Score], conversations: Sequence[Facts]
) -> list[dict[str, Any]]:
    """Every rule, in the world's order: how many held-out tasks it applies to, how many of them broke it at
    each measurement, and the conversations whose hints taught it."""
    found = []
    for rule, words in rules.items():
        taught = [each for each in conversations if rule in each["rules"]]
        applies = [[trial for trial in score.trials if rule in trial.task.rules] for score in scores]
        found.append(
            {
                "rule": rule,
                "words": words,
                "tasks": len(applies[0]),
                "broken": [sum(rule in trial.broken for trial in trials) for trials in applies],
                "taught_in": [each["number"] for each in taught],
                "said": taught[0]["reaction"] if taught else None,
            }
        )
    return found


def conversation(number: int, one: Interaction, world: World, records: Sequence[Record]) -> dict[str, Any]:
    """One task from the request to the last word, with the verdict on each turn that was answered.

    `rules` are those that the hints of its trained turns speak of.
    """
    turns = iter(map(_judged, records))
    steps = []
    for message in one.messages:
        if (speaker := _SPEAKERS.get(message["role"])) is not None:
            # the agent's messages are its turns in order; the last one, which nothing followed, is none
            judged = next(turns, None) if speaker == "agent" else None
            text = "\n".join([*_calls(message), message.get("content") or ""]).strip()
            steps.append({"speaker": speaker, "text": text, "judged": judged})
    talk = {"number": number, "request": one.task.request, "reaction": one.reaction, "mood": one.mood}
    hints = [judged["hint"] for judged in _trained({"steps": steps}) if judged["hint"]]
    named = {rule for hint in hints for rule in world.rules_named_in(hint)}
    return {**talk, "steps": steps, "rules": [rule for rule in world.rules if rule in named]}


def _judged(record: Record) -> dict[str, Any]:
    """The verdict on a turn, and the first version that it trained or why it trained none."""
    verdict, trained = record.verdict, record.trained_in
    return {
        "turn": record.turn.id,
        "reward": None if verdict is None else verdict.reward,
        "hint": verdict.hints[0] if verdict and verdict.hints else None,
        "version": trained[0] if trained else None,
        "ended": None if trained or record.reason is None else record.reason.value,
    }


def _trained(talk: Facts) -> list[Facts]:
    """The verdicts of a conversation's turns that trained a version."""
    return [
        each["judged"] for each in talk["steps"] if each["judged"] and each["judged"]["version"] is not None
    ]


def transcript(messages: Sequence[Message]) -> str:
    """The agent's work after the request: a line for every call, its result and every text."""
    lines: list[str] = []
    for message in messages[2:]:
        lines += _calls(message)
        mark = {"tool": "  -> ", "user": "person: "}.get(message["role"], "")
        lines += [mark + message["content"]] if message.get("content") else []
    return "\n".join(lines)


def _calls(message: Message) -> Iterator[str]:
    return (f"{call.name} {call.arguments}" for call in calls(message))
