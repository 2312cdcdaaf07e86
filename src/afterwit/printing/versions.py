"""The table of versions that commands print, and what was decided about them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.table import Table
from rich.text import Text

from afterwit.adapters import SHARED
from afterwit.printing.terminal import WIDE, short_moment
from afterwit.promotion.events import Event, EventKind
from afterwit.promotion.suite import Standing
from afterwit.store import VersionRecord


def version_table(
    versions: Sequence[VersionRecord],
    serving: Collection[int],
    confirmed_versions: Collection[int] = (),
    *,
    width: int,
) -> Table:
    """One row a version in `width` columns: numbers and times are always whole, the standing may be cut.

    Adapters are named if there is any beside the shared one.

    Confirmed versions are places that an alarm returns to. A narrow table leaves out since when each serves.
    """
    names = ["version", "how", "made", "learned from", "loss", "standing", "served since"]
    rows = [_version_row(version, serving, confirmed_versions) for version in versions]
    if any(version.adapter != SHARED for version in versions):
        names.insert(1, "adapter")
        for row, version in zip(rows, versions, strict=True):
            row.insert(1, version.adapter if version.number else "")
    table = Table(box=None, pad_edge=False)
    for at, name in enumerate(names[: None if width >= WIDE else -1]):
        whole = max(len(name), *(len(row[at]) for row in rows)) if rows and name != "standing" else None
        table.add_column(name, no_wrap=True, min_width=whole, overflow="ellipsis")
    for row in rows:
        table.add_row(*row[: len(table.columns)])
    return table


def _version_row(
    version: VersionRecord, serving: Collection[int], confirmed: Collection[int]
) -> list[str | Text]:
    loss = version.metrics.get("loss")
    how = version.origin.value
    if version.restores is not None:
        how += f" of {version.restores}"
    elif version.parent not in (None, version.number - 1):
        how += f" of {version.parent}"
    replayed = f" +{version.replayed} again" if version.replayed else ""
    return [
        f"{version.number}{' *' if version.number in serving else ''}",
        how,
        short_moment(version.created),
        f"{version.trained} turns{replayed}" if version.trained or version.replayed else "",
        "" if loss is None else f"{loss:.4f}",
        _standing(version, confirmed),
        short_moment(version.published_at),
    ]


def _standing(version: VersionRecord, confirmed: Collection[int]) -> Text:
    if version.number in confirmed:
        return Text(Standing.CONFIRMED, style="green")
    if version.suite is None:
        return Text("")
    lost = "" if version.suite.worst is None else f", lost some `{version.suite.worst}`"
    return Text(
        version.suite.standing + lost, style="" if version.suite.standing is Standing.CLEAN else "yellow"
    )


def event_lines(events: Sequence[Event]) -> list[Text]:
    """A line for each hold and alarm, the newest last."""
    return [
        Text(f"{short_moment(event.at)} {_whose(event)}{event.kind}: {event.words}", style="yellow")
        for event in events
        if event.kind is not EventKind.CONFIRM
    ]


def _whose(event: Event) -> str:
    return "" if event.adapter == SHARED else f"{event.adapter} "
