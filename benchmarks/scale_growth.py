"""How the time of a call grows from a size to ten times it; and that of reading the manifests, which stay.

Each call is made once before it is timed. Its time is CPU time of this process, which is SQLite's too.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from afterwit.checkpoints import manifest
from afterwit.checkpoints.versions import Versions
from afterwit.version import Effect, Origin, Probe, Version
from benchmarks.measure import Row, at_most, cpu_seconds, number

TIMES = 5
SAME = 2.0
"""A call that should not depend on the size may take this much more at ten times the size: deeper trees."""
RESPONSE = 200
"""Tokens of a response in a manifest."""
PROBE = Probe(ids=tuple(range(32)), logprobs=(-1.0,) * 31)


def seconds(work: Callable[[], object]) -> float:
    """CPU time of the call, in the median."""
    work()
    return statistics.median(cpu_seconds(work) for _ in range(TIMES))


def row(
    what: str,
    sizes: Sequence[int],
    taken: Sequence[float],
    *,
    bounded: bool,
    of: str = "turns",
    far: int = 1_000_000,
) -> Row:
    """Seconds at both sizes as a ratio; `bounded`: they should not depend on the size. `far`: the size that
    they are extrapolated to, by the power with which they grew, but no more than in proportion."""
    small, large = sizes
    growth = min(math.log10(max(taken[1] / taken[0], 1.0)), 1.0)
    there = taken[1] * (far / large) ** growth
    note = (
        f"{number(taken[0] * 1e3)} ms at {small:,} {of}, {number(taken[1] * 1e3)} at {large:,}; "
        f"extrapolated {number(there * 1e3)} at {far:,}"
    )
    return Row(
        id="Y8" if bounded else "y8",
        what=f"{what}: time, ten times the {of} / once",
        values=(taken[1] / taken[0],),
        target=at_most(SAME) if bounded else None,
        note=note,
    )


def version_of(number: int, turns: Sequence[str], effects: Sequence[Effect] = ()) -> Version:
    return Version(
        number=number,
        parent=number - 1,
        origin=Origin.UPDATE,
        created=float(number),
        turns=tuple(turns),
        probe=PROBE,
        metrics={f"metric_{at}": at / 7 for at in range(40)},
        effects=tuple(effects),
    )


def of_manifests(large: int) -> Iterator[Row]:
    """The manifests on the disk, which stay for ever: the learner reads them."""
    histories, chains, sizes = list[float](), list[float](), (large // 10, large)
    with tempfile.TemporaryDirectory() as folder:
        versions = Versions(root=Path(folder), base=Path(folder))
        for written, size in zip((0, sizes[0]), sizes, strict=True):
            for at in range(written + 1, size + 1):
                place = versions.place(at)
                place.mkdir()
                (place / manifest.NAME).write_text(manifest.dump(_with_effects(at)))
            histories.append(seconds(versions.history))
            chains.append(seconds(versions.chains))
    found = {"who learned what, at each update": histories, "whose versions, at each look": chains}
    for what, taken in found.items():
        yield row(f"learner: {what}", sizes, taken, bounded=False, of="versions", far=10_000)


def _with_effects(number: int) -> Version:
    turns = [f"{number * 4 + at:026d}" for at in range(4)]
    pushes = tuple(round(math.sin(at), 3) for at in range(RESPONSE))
    effects = [
        Effect(turn=turn, before=-1.2, after=-1.1, hinted_before=-1.0, advantages=pushes) for turn in turns
    ]
    return version_of(number, turns, effects)
