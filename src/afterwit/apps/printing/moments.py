"""Times for people."""

from __future__ import annotations

import time


def moment(seconds: float | None) -> str:
    """A time for people, without the date if it is today's; empty for None."""
    return _written(seconds, "%Y-%m-%d %H:%M")


def short_moment(seconds: float | None) -> str:
    """As `moment`, without the year."""
    return _written(seconds, "%m-%d %H:%M")


def _written(seconds: float | None, other_day: str) -> str:
    if seconds is None:
        return ""
    then = time.localtime(seconds)
    return time.strftime("%H:%M:%S" if then[:3] == time.localtime()[:3] else other_day, then)
