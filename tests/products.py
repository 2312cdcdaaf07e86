"""Parameters of a product: a diagonal in every run, the rest in `make test-slow`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

import pytest
from _pytest.mark.structures import ParameterSet


def diagonal(*axes: Iterable[object] | Mapping[str, object]) -> list[ParameterSet]:
    """All combinations; slow are those that the axes, stepped through side by side, do not come to.

    So every value of every axis has a fast case. A mapping names its values.
    """
    named = [
        dict(axis) if isinstance(axis, Mapping) else {str(value): value for value in axis} for axis in axes
    ]
    longest = max(map(len, named))
    lists = [list(axis) for axis in named]
    fast = {tuple(names[step % len(names)] for names in lists) for step in range(longest)}
    return [
        pytest.param(
            *(axis[name] for axis, name in zip(named, names, strict=True)),
            id="-".join(names),
            marks=() if names in fast else pytest.mark.slow,
        )
        for names in product(*lists)
    ]


def some(step: int, values: Iterable[object]) -> list[ParameterSet]:
    """All values; of those that are not marked slow, only each `step`-th stays fast.

    For cases that differ little: each one proves what they prove together.
    """
    made, fast = [], 0
    for value in values:
        each = value if isinstance(value, ParameterSet) else pytest.param(value)
        if not any(getattr(mark, "name", None) == "slow" for mark in each.marks):
            if fast % step:
                each = each._replace(marks=(*each.marks, pytest.mark.slow))
            fast += 1
        made.append(each)
    return made
