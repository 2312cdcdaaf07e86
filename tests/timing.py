"""Whether the time of a function grows in proportion to its input.

The time is the least processor time of several runs, which a busy machine hardly changes. Four times the
input takes four times as long if the function is linear, 16 times if it is quadratic: the limit lies between.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import TypeVar

T = TypeVar("T")
RUNS = 3
MOST = 9.0
"""Times the processor time that four times the input may take."""
NEGLIGIBLE_S = 0.03
"""Seconds that prove nothing: a quadratic scan of the larger input takes more."""


def check_linear(run: Callable[[T], object], make: Callable[[int], T], size: int) -> None:
    """Raise AssertionError unless four times the input takes about four times as long, or next to no time."""
    given = make(4 * size)
    larger = _timed(run, given)
    if larger <= NEGLIGIBLE_S:
        return
    limit = max(NEGLIGIBLE_S, MOST * _least(run, make(size)))
    if larger > limit:
        larger = _least(run, given)
    assert larger <= limit, f"{larger:.3f} s for four times what may take a {MOST:.0f}th of {limit:.3f} s"


def _least(run: Callable[[T], object], given: T) -> float:
    return min(_timed(run, given) for _ in range(RUNS))


def _timed(run: Callable[[T], object], given: T) -> float:
    begun = process_time()
    run(given)
    return process_time() - begun
