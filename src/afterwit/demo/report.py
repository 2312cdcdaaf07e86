"""The report of a demo, from its run: the curves, what taught each rule, and every conversation."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from afterwit.demo import pages
from afterwit.demo.live import Measurement, Run
from afterwit.demo.pages import Curve, Facts, chart
from afterwit.demo.people import Interaction, Score, written
from afterwit.demo.settings import JUDGES, Chosen
from afterwit.demo.world import Message, World
from afterwit.promotion.episodes import EventKind
from afterwit.store import Record

SHOWN = 6
"""Held-out tasks that are shown before and after."""
_SPEAKERS = {"user": "person", "assistant": "agent", "tool": "tool"}


def facts_of(run: Run, chosen: Chosen) -> dict[str, Any]:
    """The content of report.json but for the seconds, while the system still runs."""
    world, settings, seen = run.world, chosen.settings, run.interactions
    records = run.system.store(lambda store: [[store.turn(turn) for turn in one.turns] for one in seen])
    talks = [
        conversation(number, one, world, its)
        for number, (one, its) in enumerate(zip(seen, records, strict=True), start=1)
    ]
    decisions = [
        {"after": after, "kind": event.kind.value, "words": event.words} for after, event in run.decisions
    ]
    return {
        **summary(run.points, talks, decisions),
        "rules": rules_learned(world.rules, run.scores, talks),
        "versions": run.system.store(lambda store: sum(row.trained > 0 for row in store.versions())),
        "world": world.name,
        "kept_when": world.kept_when,
        "passed_when": world.passed_when,
        "seed": run.seed,
        "objective": settings.objective.objective,
        "judge": JUDGES[chosen.judge],
        "interactions": len(seen),
        "curve": [dataclasses.asdict(point) for point in run.points],
        "examples": examples(run.scores[0], run.scores[-1]),
        "settings": settings.model_dump(
            mode="json", include={"objective", "learner", "judge", "gateway", "promotion"}
        ),
    }


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
    rules = [rule | {"picture": Markup(_rule_picture(rule, facts))} for rule in facts["rules"]]
    settings = json.dumps(facts["settings"], indent=2)
    pages.write("report", facts, _picture(facts), out, rules=rules, settings=settings)


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
            steps.append({"speaker": speaker, "text": written(message), "judged": judged})
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
    marks = {"tool": "  -> ", "user": "person: "}
    said = ((marks.get(message["role"], ""), written(message)) for message in messages[2:])
    return "\n".join(mark + text for mark, text in said if text)
