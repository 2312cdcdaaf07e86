"""Range checks that all settings share. Each raises ValueError with the name, the value and the bound.

None, an unset value, passes; NaN fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args, get_origin, get_type_hints


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
        if value is not None and not holds(value):
            raise ValueError(f"{name} is {value}, but must be {bound}")


def one_of(section: object, allowed: Iterable[str], name: str) -> None:
    """The named value is one of the allowed ones."""
    names = list(allowed)
    if (value := getattr(section, name)) not in names:
        raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(names)}")


def one_of_its_choices(section: object) -> None:
    """Each value whose type is a Literal is one of the literal's."""
    for name, hint in get_type_hints(type(section)).items():
        if get_origin(hint) is Literal:
            one_of(section, get_args(hint), name)
