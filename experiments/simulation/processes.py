"""Many plans on all cores, each core a process of one thread; what is finished is kept and not done again."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Protocol

from afterwit.errors import AfterwitError
from experiments.simulation.plan import Plan, RunResult, key

LOOK_S = 0.5
Play = Callable[[Plan, Callable[[], object]], RunResult]
"""Plays a plan; it calls its second argument after each interaction. A process must be able to import it."""


class RunFailed(AfterwitError):
    """A run that did not come to its end: which, and why."""


class Observer(Protocol):
    """Receives the progress of the work."""

    def began(self, runs: int, interactions: int) -> None: ...

    def went_on(self, interactions: int) -> None: ...

    def ended(self, result: RunResult) -> None: ...


@dataclass(frozen=True, slots=True)
class KeptRuns:
    """Finished runs, one JSON line each. A line that was cut off counts as not there."""

    path: Path

    def read(self) -> dict[str, RunResult]:
        """Every finished run by its key."""
        if not self.path.exists():
            return {}
        results = map(_parsed, self.path.read_text(encoding="utf-8").splitlines())
        return {key(result.facts): result for result in results if result is not None}

    def add(self, result: RunResult) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(result.to_line())


def _parsed(line: str) -> RunResult | None:
    try:
        return RunResult.from_line(line)
    except (ValueError, KeyError, TypeError):
        return None


def simulated(plan: Plan, told: Callable[[], object]) -> RunResult:
    """The plan's result, played on one thread: two on busy cores are slower than one."""
    import torch

    from experiments.simulation.run import run

    torch.set_num_threads(1)
    return run(plan, told=told)


def play_all(
    plans: Sequence[Plan], kept: KeptRuns, *, jobs: int, observer: Observer, play: Play = simulated
) -> list[RunResult]:
    """Every plan's result, in order. RunFailed if one has none, raised once the others are kept."""
    keys = [key(plan.facts()) for plan in plans]
    done = kept.read()
    missing = {name: plan for name, plan in zip(keys, plans, strict=True) if name not in done}
    observer.began(len(missing), sum(plan.interactions for plan in missing.values()))
    for name, result in _work(missing, jobs, observer, play):
        kept.add(result)
        done[name] = result
        observer.ended(result)
    return [done[name] for name in keys]


def _work(
    missing: dict[str, Plan], jobs: int, observer: Observer, play: Play
) -> Iterator[tuple[str, RunResult]]:
    context, failure = multiprocessing.get_context("spawn"), None
    steps, seen = context.Value("q", 0), 0
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_settle_in, initargs=(steps,))
    try:
        names: dict[Future[RunResult], str] = {
            pool.submit(_play, plan, play): name for name, plan in missing.items()
        }
        waiting = set(names)
        while waiting:
            over, waiting = wait(waiting, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            observer.went_on(steps.value - seen)
            seen = steps.value
            for future in over:
                if (error := future.exception()) is None:
                    yield names[future], future.result()
                failure = failure or error
    finally:
        pool.shutdown(cancel_futures=True)  # who interrupts waits for no run that has not begun
    if failure is not None:
        raise failure


_steps: Synchronized[int] | None = None
"""Interactions played by all processes together."""


def _settle_in(steps: Synchronized[int]) -> None:
    """In each process before its first run."""
    global _steps
    from afterwit.running.logs import set_up

    _steps = steps
    set_up(logging.ERROR)


def _play(plan: Plan, play: Play) -> RunResult:
    try:
        return play(plan, _step)
    except Exception as error:  # it must reach the other process, which not every error can
        why = f"{type(error).__name__}: {error}"
        raise RunFailed(f"{plan.name or 'a run'}, {plan.world}, seed {plan.seed}: {why}") from None


def _step() -> None:
    assert _steps is not None
    with _steps.get_lock():
        _steps.value += 1
