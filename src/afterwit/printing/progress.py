"""Whether people correct the model less, as text, JSON and PNG."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from afterwit.build import store_of_home
from afterwit.home.home import writing
from afterwit.printing.terminal import Terminal, moment, write_json
from afterwit.progress import Progress, by, progress
from afterwit.promotion.watch import requests_asked

BAR = 10

Parts = Mapping[str, Mapping[str, Progress]]
"""`all`, `source` and `kind`, each by name."""


def print_progress(home: Path | None, *, json: bool, png: Path | None) -> None:
    """`afterwit progress`: over all requests, for each source, and for each kind of task."""
    with store_of_home(home) as store:
        requests = requests_asked(store)
    parts: Parts = {
        "all": {"all": progress(requests)},
        "source": by(requests, lambda request: request.source),
        "kind": by(requests, lambda request: request.kind),
    }
    if json:
        write_json({name: {key: _facts(each) for key, each in part.items()} for name, part in parts.items()})
    else:
        console = Terminal()
        for line in _shown(parts):
            console.print(line)
    if png is not None:
        draw(parts["all"]["all"], png)
        print(f"wrote {png}", file=sys.stderr)


def _facts(whole: Progress) -> dict[str, Any]:
    periods = [asdict(period) | {"per_session": period.per_session} for period in whole.periods]
    return asdict(whole) | {"periods": periods}


def _shown(parts: Parts) -> Iterator[Text | Table]:
    """The answer, and a table of all periods, of each source and of each kind of task."""
    whole = parts["all"]["all"]
    yield Text(whole.sentence, style="bold")
    if not whole.periods:
        return
    tables = {"since": [(moment(each.since, year=False), each) for each in whole.periods]}
    for name in ("source", "kind"):
        tables[name] = [
            (f"{key}, {age}" if len(each.periods) > 1 else key, period)
            for key, each in parts[name].items()
            for age, period in zip(("early", "late"), each.periods, strict=False)
        ]
    columns = ("sessions", "requests", "complaints each", "with a complaint")
    for first, rows in tables.items():
        table = Table(first, *columns, box=None, pad_edge=False)
        table.add_column(no_wrap=True, min_width=BAR)
        for name, period in rows:
            mean, share = period.per_session_interval, period.share_interval
            table.add_row(
                name,
                str(period.sessions),
                str(period.requests),
                f"{period.per_session:.2f} ({mean.low:.2f}-{mean.high:.2f})",
                f"{period.share:.0%} ({100 * share.low:.0f}-{share.high:.0%})",
                "█" * round(BAR * period.share),
            )
        yield table


def draw(whole: Progress, file: Path) -> None:
    """The share of sessions with a complaint and its interval, over sessions, as a PNG.

    SettingError if the file cannot be written.
    """
    from matplotlib.figure import Figure

    ends, count = list[float](), 0
    for period in whole.periods:
        ends.append(count + period.sessions / 2)
        count += period.sessions
    share = [period.share for period in whole.periods]
    below = [period.share - period.share_interval.low for period in whole.periods]
    above = [period.share_interval.high - period.share for period in whole.periods]
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.errorbar(ends, share, yerr=[below, above], marker="o", capsize=4, color="tab:blue")
    axes.set(xlabel="sessions", ylabel="share with a complaint", ylim=(-0.02, 1.02), xlim=(0, max(count, 1)))
    axes.spines[["top", "right"]].set_visible(False)
    with writing(file):
        figure.savefig(file, dpi=130, format="png")
