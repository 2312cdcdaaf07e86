"""How benchmarks measure: variants in turn, CPU time, noisy runs thrown away, ratios next to targets."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TOLERANCE = 0.10
"""A run whose two timings of the floor differ by more than this share says nothing."""
FLOOR = "floor"

Variants = Mapping[str, Callable[[], object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of the suite: its values, each run's, and what they should not exceed."""

    id: str
    what: str
    values: tuple[float, ...]
    target: float | None
    """Of the median; None: for information."""
    note: str = ""

    @property
    def passed(self) -> bool | None:
        return None if self.target is None else statistics.median(self.values) <= self.target

    def line(self) -> str:
        low, middle, high = min(self.values), statistics.median(self.values), max(self.values)
        verdict = {None: "", True: "pass", False: "MISS"}[self.passed]
        target = "" if self.target is None else f"<= {self.target:g}"
        figures = f"{low:9.3g} {middle:9.3g} {high:9.3g}"
        return f"{self.id:4} {self.what:58} {figures}  {target:10} {verdict} {self.note}"


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process that the work takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def interleaved(variants: Variants, *, runs: int) -> tuple[list[dict[str, float]], int]:
    """CPU seconds by variant for each run, and how many runs were thrown away.

    `variants` begins with `floor`, which is timed again at the end of each run; its time is the mean of both.
    The first round warms up and does not count.
    """
    for work in variants.values():
        work()
    kept, rejected = [], 0
    while len(kept) < runs and rejected < 3 * runs:
        spent = {name: cpu_seconds(work) for name, work in variants.items()}
        first, again = spent[FLOOR], cpu_seconds(variants[FLOOR])
        if abs(first - again) > TOLERANCE * min(first, again):
            rejected += 1
            continue
        kept.append(spent | {FLOOR: (first + again) / 2})
    if not kept:
        raise SystemExit("the machine was never quiet: the floor's two timings differed by more than a tenth")
    return kept, rejected


def ratios(runs: Sequence[Mapping[str, float]], variant: str, to: str = FLOOR) -> tuple[float, ...]:
    """A variant's time over another's, in each run."""
    return tuple(run[variant] / run[to] for run in runs)


def report(question: str, rows: Sequence[Row], *, out: Path | None, **facts: Any) -> None:
    """Print the rows; write them, with commit and machine, as JSON."""
    print(f"{'':63} {'minimum':>9} {'median':>9} {'maximum':>9}  target")
    for row in rows:
        print(row.line())
    result = {
        "question": question,
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "machine": {"platform": platform.platform(), "cpu": _cpu(), "python": platform.python_version()},
        **facts,
        "rows": [asdict(row) | {"passed": row.passed} for row in rows],
    }
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=2) + "\n")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()
