"""The report as a page, whole in one file. Every text from a conversation is escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from afterwit.apps.demo.report.curves import Curve, Mark, chart

_PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(facts: Mapping[str, Any]) -> str:
    """The page that shows what report.json says."""
    pictured = {
        "picture": _picture(facts),
        "rules": [rule | {"picture": _rule_picture(rule, facts)} for rule in facts["rules"]],
        "settings": json.dumps(facts["settings"], indent=2),
    }
    return render("report.html", **{**facts, **pictured})


def render(template: str, **values: object) -> str:
    """A page from its template; every text in it is escaped, unless it is Markup."""
    return _PAGES.get_template(template).render(values)


def _picture(facts: Mapping[str, Any]) -> Markup:
    curves = [
        _curve(facts, "task success", "success", "task_success"),
        _curve(facts, "preference", "preference", "preference"),
    ]
    marks = [
        Mark(after=each["after"], style=each["kind"], words=each["words"])
        for each in facts["decisions"]
        if each["kind"] != "confirm"
    ]
    label = f"preference and task success over {facts['interactions']} tasks of people"
    return Markup(chart(curves, width=560, height=230, label=label, marks=marks))


def _curve(facts: Mapping[str, Any], name: str, style: str, share: str) -> Curve:
    points = tuple((point["interactions"], point[share]) for point in facts["curve"])
    return Curve(name=name, style=style, points=points)


def _rule_picture(rule: Mapping[str, Any], facts: Mapping[str, Any]) -> Markup:
    """The share of its tasks in which a rule was not broken; nothing if it applied to none."""
    if not rule["tasks"]:
        return Markup("")
    counts = [point["interactions"] for point in facts["curve"]]
    kept = [1 - broken / rule["tasks"] for broken in rule["broken"]]
    curve = Curve(name="kept", style="preference", points=tuple(zip(counts, kept, strict=True)))
    return Markup(chart([curve], width=280, height=110, label=f"how often it was kept: {rule['words']}"))
