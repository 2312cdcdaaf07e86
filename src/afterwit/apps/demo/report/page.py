"""The report as a page, whole in one file. Every text from a conversation is escaped."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

_PAGE = Path(__file__).with_name("report.html")
_LINKS = 6
"""Conversations that are named beside a rule; the others are counted."""
_MOODS = {
    "complaint": "the person complained",
    "failure": "the check failed",
    "approval": "the person approved",
}


def page(facts: Mapping[str, Any], picture: str) -> str:
    """The page that shows what report.json says, with the learning curve as base64 PNG."""
    accuracy = facts["judge_accuracy"]
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(
        title=_text(f"Afterwit demo: {facts['world']} world"),
        before=f"{facts['preference_before']:.2f}",
        after=f"{facts['preference_after']:.2f}",
        success_before=f"{facts['task_success_before']:.2f}",
        success_after=f"{facts['task_success_after']:.2f}",
        kept_when=_text(facts["kept_when"]),
        passed_when=_text(facts["passed_when"]),
        interactions=facts["interactions"],
        seconds=f"{facts['seconds']:.0f}",
        picture=picture,
        judge=_text(facts["judge"] + (f", right in {accuracy:.0%} of held-out cases" if accuracy else "")),
        objective=_text(facts["objective"]),
        rules="\n".join(map(_rule, facts["rules"])),
        examples="\n".join(map(_example, facts["examples"])),
        taught=len(facts["lessons"]),
        turns=sum(len(lesson["turns"]) for lesson in facts["lessons"]),
        lessons="\n".join(map(_lesson, facts["lessons"])),
        settings=_text(json.dumps(facts["settings"], indent=2)),
    )


def _text(said: object) -> str:
    return html.escape(str(said))


def _rule(rule: Mapping[str, Any]) -> str:
    before = f"Broken in {rule['broken_before']} of {rule['tasks']} held-out tasks before"
    return (
        f"<li><b>{_text(rule['words'])}</b> {before}, in {rule['broken_after']} after. {_taught(rule)}</li>"
    )


def _taught(rule: Mapping[str, Any]) -> str:
    if not rule["taught_in"]:
        return "No conversation taught it."
    first, *others = rule["taught_in"]
    taught = f"Taught by the person in conversation {_link(first)}, who said: <q>{_text(rule['said'])}</q>"
    if not others:
        return taught
    more = f" and {len(others) - _LINKS} more" if len(others) > _LINKS else ""
    return f"{taught} Taught again in {', '.join(map(_link, others[:_LINKS]))}{more}."


def _link(number: int) -> str:
    return f'<a href="#conversation-{number}">{number}</a>'


def _example(example: Mapping[str, Any]) -> str:
    sides = "".join(
        f'<div class="{_class(example, when)}"><b>{when}: {_verdict(example, when)}</b>'
        f"<pre>{_text(example[when])}</pre></div>"
        for when in ("before", "after")
    )
    return (
        f'<section><p class="asked">{_text(example["request"])}</p><div class="sides">{sides}</div></section>'
    )


def _class(example: Mapping[str, Any], when: str) -> str:
    return "right" if example[f"kept_{when}"] and example[f"passed_{when}"] else "wrong"


def _verdict(example: Mapping[str, Any], when: str) -> str:
    rules = "rules kept" if example[f"kept_{when}"] else "rules broken"
    return f"{rules}, {'done' if example[f'passed_{when}'] else 'not done'}"


def _lesson(lesson: Mapping[str, Any]) -> str:
    turns = "".join(map(_turn, lesson["turns"]))
    return (
        f"<details><summary>{lesson['interaction']}. {_text(lesson['request'])}"
        f" <i>{_MOODS[lesson['mood']]}</i></summary>"
        # a link to what a folded element holds unfolds it
        f'<div id="conversation-{lesson["interaction"]}"><ol>{turns}</ol>'
        f"<p>The person then said: <q>{_text(lesson['reaction'])}</q></p></div></details>"
    )


def _turn(turn: Mapping[str, Any]) -> str:
    hint = (
        f"<p>Hint that the judge made of what followed: <q>{_text(turn['hint'])}</q></p>"
        if turn["hint"]
        else ""
    )
    trained = (
        f"<p>Trained into version {turn['version']}. <code>afterwit show {_text(turn['turn'])}</code></p>"
    )
    return f"<li><pre>{_text(turn['response'])}</pre>{hint}{trained}</li>"
