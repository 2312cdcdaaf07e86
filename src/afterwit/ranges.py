"""Checks that all settings share. Those of ranges raise ValueError with the name, the value and the bound.

None, an unset value, passes; NaN fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from afterwit.errors import SettingError

MOST = 2**53
"""Of a whole number, so that sums with it fit a database's integers."""


def at_least(section: object, bound: float, *names: str) -> None:
    """Each named value is `bound` or more."""
    _check(section, names, lambda value: value >= bound, f"at least {bound:g}")


def at_most(section: object, bound: float, *names: str) -> None:
    """Each named value is `bound` or less."""
    _check(section, names, lambda value: value <= bound, f"at most {bound:g}")


def above(section: object, bound: float, *names: str) -> None:
    """Each named value is more than `bound`."""
    _check(section, names, lambda value: value > bound, f"above {bound:g}")


def below(section: object, bound: float, *names: str) -> None:
    """Each named value is less than `bound`."""
    _check(section, names, lambda value: value < bound, f"below {bound:g}")


def within(section: object, low: float, high: float, *names: str) -> None:
    """Each named value lies between `low` and `high`, both included."""
    _check(section, names, lambda value: low <= value <= high, f"between {low:g} and {high:g}")


def _check(section: object, names: tuple[str, ...], holds: Callable[[Any], bool], bound: str) -> None:
    for name in names:
        value = getattr(section, name)
        if isinstance(value, int) and value > MOST:
            raise ValueError(f"{name} must be at most {MOST}")
        if value is not None and not holds(value):
            raise ValueError(f"{name} is {value}, but must be {bound}")


def one_of(section: object, allowed: Iterable[str], name: str) -> None:
    """The named value is one of the allowed ones."""
    names = list(allowed)
    if (value := getattr(section, name)) not in names:
        raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(names)}")


def one_of_its_choices(section: object) -> None:
    """Each value whose type is a Literal is one of the literal's."""
    kind: type = type(section)
    for name, choices in _choices(kind).items():
        one_of(section, choices, name)


@cache
def _choices(kind: type) -> dict[str, tuple[str, ...]]:
    """Of each field whose type is a Literal. Reading them takes longer than building the settings."""
    hints = get_type_hints(kind).items()
    return {name: get_args(hint) for name, hint in hints if get_origin(hint) is Literal}


def key_from(environment: Mapping[str, str], variable: str | None, *, setting: str) -> str | None:
    """The key in the variable that a setting names; None if it names none. SettingError if it is not set."""
    if variable is None:
        return None
    if not (key := environment.get(variable)):
        raise SettingError(f"{setting} names the environment variable {variable}, which is not set")
    return key


def in_hours(hours: str | None, hour: int, minute: int) -> bool:
    """Whether a time of day lies within hours such as "22:00-07:00", the end left out; None: always."""
    if hours is None:
        return True
    begin, end = times_of_day(hours)
    at = 60 * hour + minute
    return begin <= at < end if begin < end else at >= begin or at < end


def times_of_day(hours: str) -> tuple[int, int]:
    """Begin and end in minutes of the day. ValueError if they are not written as "22:00-07:00"."""
    found = re.fullmatch(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})", hours.strip(), re.ASCII)
    parts = [int(part) for part in found.groups()] if found else []
    if not parts or max(parts[::2]) > 23 or max(parts[1::2]) > 59 or parts[:2] == parts[2:]:
        raise ValueError(f"hours is {hours!r}, but must be two times of day such as 22:00-07:00")
    return 60 * parts[0] + parts[1], 60 * parts[2] + parts[3]
