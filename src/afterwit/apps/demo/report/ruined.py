"""Two runs under a setting that ruins the model, with promotion and without it: a table and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from rich.table import Table

from afterwit.apps.demo.report.curves import Curve, Mark, chart
from afterwit.apps.demo.report.page import render
from afterwit.apps.demo.report.report import Report
from afterwit.core.promotion import EventKind


def compared(guarded: Report, unguarded: Report) -> Table:
    """A row for each measurement: with promotion, and without."""
    table = Table("tasks", "preference", "without", "task success", "without", box=None, pad_edge=False)
    for one, other in zip(guarded.points, unguarded.points, strict=True):
        shares = (one.preference, other.preference, one.task_success, other.task_success)
        table.add_row(str(one.interactions), *(f"{share:.2f}" for share in shares))
    return table


def write_compared(
    guarded: Report, unguarded: Report, file: Path, *, settings: Sequence[str], without: Sequence[str]
) -> None:
    """The page, beside the two runs' folders."""
    pairs = [
        {
            "interactions": one.interactions,
            "preference": (one.preference, other.preference),
            "task_success": (one.task_success, other.task_success),
        }
        for one, other in zip(guarded.points, unguarded.points, strict=True)
    ]
    decided = [each for each in guarded.decisions if each.kind != EventKind.CONFIRM]
    text = render(
        "ruin.html",
        world=guarded.world,
        settings=settings,
        without=without,
        kept_when=guarded.kept_when,
        passed_when=guarded.passed_when,
        points=pairs,
        decided=decided,
        versions=(guarded.versions, unguarded.versions),
        pictures={
            "Preference": _picture("preference", guarded, unguarded),
            "Task success": _picture("task_success", guarded, unguarded),
        },
    )
    file.write_text(text, encoding="utf-8")


def _picture(share: str, guarded: Report, unguarded: Report) -> Markup:
    curves = [
        Curve(
            name=name,
            style=style,
            points=tuple((point.interactions, getattr(point, share)) for point in report.points),
        )
        for name, style, report in (
            ("without promotion", "other", unguarded),
            ("with promotion", "preference", guarded),
        )
    ]
    marks = [
        Mark(after=each.after, style=each.kind, words=each.words)
        for each in guarded.decisions
        if each.kind != EventKind.CONFIRM
    ]
    label = f"{share.replace('_', ' ')} with promotion and without it"
    return Markup(chart(curves, width=420, height=230, label=label, marks=marks))
