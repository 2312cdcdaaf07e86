"""Whether people correct the model less, as text, JSON and PNG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from afterwit.errors import SettingError
from afterwit.printing.terminal import short_moment
from afterwit.progress import Period, PersonRequest, Progress, Trend, by, progress

BAR = 20
"""Characters of a full bar."""

ANSWER = {
    Trend.LESS: "You correct it less than at first",
    Trend.MORE: "You correct it more than at first",
    Trend.UNCLEAR: "No difference can be told yet",
}

NOTHING = "no conversation has come to an end with words of a person yet: there is nothing to count"

Parts = Mapping[str, Mapping[str, Progress]]
"""`all`, `source` and `kind`, each by name."""


def parts_of(requests: Sequence[PersonRequest]) -> Parts:
    """Progress over all requests, for each source, and for each kind of task."""
    return {
        "all": {"all": progress(requests)},
        "source": by(requests, lambda request: request.source),
        "kind": by(requests, lambda request: request.kind),
    }


def as_json(parts: Parts) -> dict[str, dict[str, dict[str, Any]]]:
    """The same, for programs."""
    return {name: {key: _facts(each) for key, each in part.items()} for name, part in parts.items()}


def _facts(whole: Progress) -> dict[str, Any]:
    periods = [
        {name: value for name, value in asdict(period).items() if name != "counts"}
        | {"per_session": period.per_session, "per_session_interval": asdict(period.per_session_interval)}
        for period in whole.periods
    ]
    return {"periods": periods, "change": asdict(whole.change), "trend": whole.trend}


def text_of(parts: Parts) -> Iterator[Text | Table]:
    whole = parts["all"]["all"]
    if not whole.periods:
        yield Text(NOTHING)
        return
    yield Text(_answer(whole), style="bold")
    yield _table("when", [(_when(period), period) for period in whole.periods])
    for name in ("source", "kind"):
        yield _table(
            name,
            [
                (f"{key}, {age}" if len(each.periods) > 1 else key, period)
                for key, each in parts[name].items()
                for age, period in zip(("early", "late"), each.periods, strict=False)
            ],
        )


def _answer(whole: Progress) -> str:
    low, high = whole.change.low, whole.change.high
    if len(whole.periods) < 2:
        return f"{ANSWER[Trend.UNCLEAR]}: too few sessions."
    first, last = whole.periods[0].share, whole.periods[-1].share
    return (
        f"{ANSWER[whole.trend]}: {first:.0%} of the first sessions had a complaint, {last:.0%} of the last"
        f" (change {100 * low:+.0f} to {100 * high:+.0f} points)."
    )


def _table(first: str, rows: Sequence[tuple[str, Period]]) -> Table:
    table = Table(
        first,
        "sessions",
        "requests",
        "complaints a session",
        "sessions with a complaint",
        "",
        box=None,
        pad_edge=False,
    )
    for name, period in rows:
        mean, share = period.per_session_interval, period.share_interval
        table.add_row(
            name,
            str(period.sessions),
            str(period.requests),
            f"{period.per_session:.2f} ({mean.low:.2f} to {mean.high:.2f})",
            f"{period.share:.0%} ({share.low:.0%} to {share.high:.0%})",
            "█" * round(BAR * period.share),
        )
    return table


def _when(period: Period) -> str:
    return f"{short_moment(period.since)} to {short_moment(period.until)}"


def draw(whole: Progress, file: Path) -> None:
    """The share of sessions with a complaint and its interval, over sessions, as a PNG.

    SettingError if the file cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    ends, count = list[float](), 0
    for period in whole.periods:
        ends.append(count + period.sessions / 2)
        count += period.sessions
    share = [period.share for period in whole.periods]
    below = [period.share - period.share_interval.low for period in whole.periods]
    above = [period.share_interval.high - period.share for period in whole.periods]
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    axes.errorbar(ends, share, yerr=[below, above], marker="o", capsize=4, color="tab:blue")
    axes.set(xlabel="sessions", ylabel="share with a complaint", ylim=(-0.02, 1.02), xlim=(0, max(count, 1)))
    axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(file, dpi=130, format="png")
    except OSError as error:
        raise SettingError(f"{file} cannot be written: {error.strerror}") from error
    finally:
        plt.close(figure)
