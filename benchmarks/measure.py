"""How benchmarks measure: variants in turn, noisy runs thrown away, ratios next to targets."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import ParamSpec, TypeVar, cast

TOLERANCE = 0.10
"""A run counts only if its two timings of the floor differ by at most this share."""
FLOOR = "floor"

Clock = Callable[[Callable[[], object]], float]
Variants = Mapping[str, Callable[[], object]]
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Target:
    """The bound that the median of a row should not exceed, or not fall below."""

    bound: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def distance(self, value: float) -> float:
        """The value as a multiple of its bound, turned so that more than 1 misses."""
        return self.bound / value if self.at_least else value / self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"


def at_most(bound: float) -> Target:
    return Target(bound)


def at_least(bound: float) -> Target:
    return Target(bound, at_least=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of the suite."""

    id: str
    """Of the target; rows that are there for information begin with a lower-case letter."""
    what: str
    values: tuple[float, ...]
    """One a run; empty: `absent` gives the reason."""
    target: Target | None = None
    floor: str = ""
    """The least that the work needs, if the values are multiples of that."""
    peer: str = ""
    """Another program that does the same work, if the values compare with it."""
    why: str = ""
    """Why it misses its target; shown if it does."""
    note: str = ""
    absent: str = "does not fit"
    """The reason for missing figures: too little memory, unless you give another."""

    @property
    def middle(self) -> float:
        return statistics.median(self.values)

    @property
    def figures(self) -> str:
        """The median, and the runs' range; without runs the reason."""
        if not self.values:
            return self.absent
        low, high = number(min(self.values)), number(max(self.values))
        return number(self.middle) + ("" if low == high else f" ({low} to {high})")

    @property
    def verdict(self) -> str:
        if self.target is None or not self.values:
            return ""
        return "pass" if self.target.met(self.middle) else "MISS"

    @property
    def remark(self) -> str:
        """The note, and the reason if the target is missed."""
        return noted(self.note, self.why if self.verdict == "MISS" else "")


def number(value: float) -> str:
    """Three digits, and every digit before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def noted(*remarks: str) -> str:
    """Those that say something."""
    return "; ".join(filter(None, remarks))


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process that the work takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def itself(work: Callable[[], object]) -> float:
    """The clock of work that returns what it took."""
    return cast(float, work())


def interleaved(
    variants: Variants, *, runs: int, clock: Clock = cpu_seconds
) -> tuple[list[dict[str, float]], str]:
    """Seconds by variant for each run; and whether runs were thrown away, in words.

    `variants` begins with `floor`, which is timed again at the end of each run; its time is the mean of both.
    The first round warms up and does not count, but as the one run of `--quick`, which is kept however noisy
    it is. A variant that raises MemoryError there is left out.
    """
    began = dict[str, float]()
    for name, work in variants.items():
        _show(name, "warming up")
        if (seconds := _spent(clock, work)) is not None:
            began[name] = seconds
    if FLOOR not in began:
        raise SystemExit("what all is compared with does not fit into memory")
    if runs == 1:
        return [began], ""
    fit = {name: variants[name] for name in began}
    kept, tried = list[dict[str, float]](), 0
    while len(kept) < runs and tried < 4 * runs:
        tried += 1
        spent = dict[str, float]()
        for name, work in fit.items():
            _show(name, f"run {len(kept) + 1} of {runs}")
            spent[name] = clock(work)
        first, again = spent[FLOOR], clock(fit[FLOOR])
        if abs(first - again) <= TOLERANCE * min(first, again):
            kept.append(spent | {FLOOR: (first + again) / 2})
    if not kept:
        raise SystemExit("the machine was never quiet: the floor's two timings differed by more than a tenth")
    thrown = tried - len(kept)
    return kept, f"{thrown} of {tried} runs thrown away" if thrown else ""


def _show(variant: str, stage: str) -> None:
    """Print what is timed now to the terminal: a question may take half an hour."""
    print(f"   {stage}: {variant}", file=sys.stderr, flush=True)


def _spent(clock: Clock, work: Callable[[], object]) -> float | None:
    try:
        return clock(work)
    except MemoryError:
        return None


def ratios(runs: Sequence[Mapping[str, float]], above: str, below: str = FLOOR) -> tuple[float, ...]:
    """A variant's time over another's, in each run; empty if either was left out."""
    return tuple(run[above] / run[below] for run in runs if above in run and below in run)


def quotients(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """Each of the one over each of the other; none if one does not fit."""
    return tuple(one / other for one, other in zip(above, below, strict=False))


def apart(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The function's result, from a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *args, **kwargs).result()


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """The rows as a table."""
    yield f"{'':4} {'':62} {'minimum':>9} {'median':>9} {'maximum':>9}  {'target':10}"
    for row in rows:
        figures = f"{row.absent:>29}"
        if row.values:
            figures = " ".join(
                f"{number(value):>9}" for value in (min(row.values), row.middle, max(row.values))
            )
        target = "" if row.target is None else str(row.target)
        yield f"{row.id:4} {row.what:62} {figures}  {target:10} {row.verdict:4} {row.remark}"
