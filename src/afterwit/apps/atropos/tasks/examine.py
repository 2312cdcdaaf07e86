"""The exam of a solution: tests in one box, the solution in another, nothing but calls and values between.

So a solution cannot read the tests, end them early, print their verdict, replace what they use or compare
equal to everything: all that it can do is answer a call.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from afterwit.apps.atropos.tasks.task import SOLUTION, Task, TestVerdict
from afterwit.apps.sandbox.box import Box, BoxLimits, Walls, open_box
from afterwit.core.errors import BoxEnded

PROGRAMS = Path(__file__).parent / "exam"
NO_ANSWER = "null"
MOST_CALLS = 10_000
"""Calls of one test."""
LONGEST = 6
"""A test's time, as a multiple of what one call may take."""


async def examine(
    task: Task,
    solution: str | None,
    walls: Walls,
    limits: BoxLimits,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> TestVerdict:
    """Run the task's tests on the text of a solution; None: there is none. `limits` hold for each call.

    A solution that ends its own box fails. Raises BoxEnded if a box does not come up, or the tests' box ends.
    """
    if solution is None:
        return TestVerdict(passed=0, total=len(task.tests), failure=f"there is no {SOLUTION}")
    failures: list[str] = []
    async with AsyncExitStack() as boxes:
        examiner = await boxes.enter_async_context(open_box(walls, limits))
        candidate = await boxes.enter_async_context(open_box(walls, limits))
        await _install(examiner, "examiner")
        await _install(candidate, "candidate")
        await candidate.write(SOLUTION, solution)
        for test in task.tests:
            asked = {"test": f"{task.setup}\n{test}", "entry_point": task.entry_point}
            is_late = _deadline(clock, LONGEST * limits.seconds)
            failure = await _one(asked, examiner, candidate, is_late)
            if failure is not None:
                failures.append(failure)
    passed = len(task.tests) - len(failures)
    return TestVerdict(passed=passed, total=len(task.tests), failure=failures[0] if failures else None)


async def _install(box: Box, program: str) -> None:
    for name in ("__init__", "plain", program):
        await box.write(f"exam/{name}.py", (PROGRAMS / f"{name}.py").read_text(encoding="utf-8"))


def _deadline(clock: Callable[[], float], seconds: float) -> Callable[[], bool]:
    """A function that says whether this many seconds have passed since now."""
    until = clock() + seconds
    return lambda: clock() > until


async def _one(
    asked: dict[str, Any], examiner: Box, candidate: Box, is_late: Callable[[], bool]
) -> str | None:
    """Why a test fails; None if it passes. Both programs are fresh for each test."""
    await examiner.start(["python", "-m", "exam.examiner"])
    try:
        with suppress(*GONE):  # then no call is answered
            await candidate.start(["python", "-m", "exam.candidate"])
        return await _carry(asked, examiner, candidate, is_late)
    finally:
        await examiner.stop()
        with suppress(*GONE):
            await candidate.stop()


GONE = (BoxEnded, OSError)
"""What a box that has ended raises."""


async def _carry(
    asked: dict[str, Any], examiner: Box, candidate: Box, is_late: Callable[[], bool]
) -> str | None:
    line: str | None = json.dumps(asked)
    for _ in range(MOST_CALLS):
        if is_late():
            return "a test with all its calls took too long"
        said = _object(await examiner.ask(line or NO_ANSWER))
        match said:
            case {"failure": None}:
                return None
            case {"failure": str(failure)}:
                return failure
            case {"call": dict(call)}:
                line = json.dumps(_object(await _answered(candidate, call)))
            case _:
                return "the tests ran out of their limits"
    return f"a test called the solution more than {MOST_CALLS} times"


async def _answered(candidate: Box, call: dict[str, Any]) -> str | None:
    try:
        return await candidate.ask(json.dumps(call))
    except GONE:
        return None


def _object(line: str | None) -> dict[str, Any] | None:
    """The JSON object of a line; None if it is anything else."""
    try:
        value = json.loads(line) if line is not None else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
