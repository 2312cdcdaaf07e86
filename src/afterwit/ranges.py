"""Range checks that all settings share. Each raises ValueError with the name, the value and the bound.

A value of None was not given and passes; a value that is not a number fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin, get_type_hints


def at_least(section: object, bound: float, *names: str) -> None:
    """Each named value is `bound` or more."""
    for name, value in _given(section, names):
        if not value >= bound:
            raise ValueError(f"{name} is {value}, but must be at least {bound:g}")


def at_most(section: object, bound: float, *names: str) -> None:
    """Each named value is `bound` or less."""
    for name, value in _given(section, names):
        if not value <= bound:
            raise ValueError(f"{name} is {value}, but must be at most {bound:g}")


def above(section: object, bound: float, *names: str) -> None:
    """Each named value is more than `bound`."""
    for name, value in _given(section, names):
        if not value > bound:
            raise ValueError(f"{name} is {value}, but must be above {bound:g}")


def below(section: object, bound: float, *names: str) -> None:
    """Each named value is less than `bound`."""
    for name, value in _given(section, names):
        if not value < bound:
            raise ValueError(f"{name} is {value}, but must be below {bound:g}")


def within(section: object, low: float, high: float, *names: str) -> None:
    """Each named value lies between `low` and `high`, both included."""
    for name, value in _given(section, names):
        if not low <= value <= high:
            raise ValueError(f"{name} is {value}, but must be between {low:g} and {high:g}")


def one_of(section: object, allowed: Iterable[str], name: str) -> None:
    """The named value is one of the allowed ones."""
    names = list(allowed)
    if (value := getattr(section, name)) not in names:
        raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(names)}")


def one_of_its_choices(section: object) -> None:
    """Each value whose type is a Literal is one of the literal's."""
    for name, allowed in _choices(type(section)).items():
        one_of(section, allowed, name)


def _given(section: object, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    values = [(name, getattr(section, name)) for name in names]
    return [(name, value) for name, value in values if value is not None]


def _choices(kind: type) -> dict[str, tuple[str, ...]]:
    hints = get_type_hints(kind)
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
