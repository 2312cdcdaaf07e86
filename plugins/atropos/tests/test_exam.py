"""In boxes: a good solution passes all hidden tests; one that cheats, whatever it tries, passes none.

`test_examiner` examines a good solution of every task without boxes.
"""

from __future__ import annotations

import asyncio
import itertools
from textwrap import dedent

import pytest

from afterwit_atropos.coding.tasks import Task, TestVerdict, built_in, examine
from afterwit_atropos.sandbox.isolation import BoxLimits, find_isolation
from plugins.atropos.tests.cheats import CHEATS
from plugins.atropos.tests.sandbox.boxes import here, isolated
from plugins.atropos.tests.solutions import GOOD, only_the_examples
from tests.products import some

PATIENT = BoxLimits(seconds=60)
BY_NAME = {task.name: task for task in built_in()}
ADDING = Task(
    name="adding", prompt="add(a, b) adds", tests=("assert add(2, 3) == 5", "assert add(1, 1) == 2")
)


async def verdict(solution: str | None, task: Task = ADDING, limits: BoxLimits = PATIENT) -> TestVerdict:
    return await examine(task, solution, here(), limits)


@isolated
@pytest.mark.parametrize("name", some(4, BY_NAME))
async def test_a_good_solution_passes_all_hidden_tests_of_its_task(name: str) -> None:
    found = await verdict(GOOD[name], BY_NAME[name])
    assert (found.correctness, found.failure) == (1.0, None)


@isolated
@pytest.mark.parametrize("name", some(8, BY_NAME))
async def test_a_solution_that_knows_the_visible_examples_alone_passes_no_hidden_test(name: str) -> None:
    assert (await verdict(only_the_examples(BY_NAME[name]), BY_NAME[name])).passed == 0


@isolated
@pytest.mark.parametrize("how", CHEATS)
async def test_a_solution_that_cheats_passes_no_test(how: str) -> None:
    limits = BoxLimits(seconds=60, cpu_seconds=1, processes=16)
    found = await verdict(dedent(CHEATS[how]), limits=limits)
    assert (found.passed, found.total) == (0, 2)
    assert found.failure


async def test_a_solution_that_ends_its_own_box_fails_and_takes_no_exam_with_it() -> None:
    ending = "import os, signal\ndef add(a, b): os.kill(os.getppid(), signal.SIGKILL)"
    found = await examine(ADDING, ending, find_isolation(unsafe=True), PATIENT)
    assert (found.passed, found.total) == (0, 2)
    assert found.failure == "add(2, 3) ended the solution or ran out of its limits"


async def test_an_exam_that_is_cancelled_while_a_test_runs_ends_as_cancelled() -> None:
    readings = itertools.count()

    def clock() -> float:
        if next(readings) == 1:  # the test begins: the cancellation meets it as it waits for its examiner
            asyncio.get_running_loop().call_soon(exam.cancel)
        return 0.0

    adds = "def add(a, b): return a + b"
    exam = asyncio.ensure_future(examine(ADDING, adds, find_isolation(unsafe=True), PATIENT, clock=clock))
    with pytest.raises(asyncio.CancelledError):
        await exam


@isolated
async def test_a_solution_that_is_slow_at_each_call_fails_when_its_test_has_taken_too_long() -> None:
    many = Task(name="many", prompt="p", tests=("for n in range(100): assert add(n, 1) == n + 1",))
    hours = itertools.count(step=0.1)
    found = await examine(
        many, "def add(a, b): return a + b", here(), BoxLimits(seconds=1), clock=lambda: next(hours)
    )
    assert found.failure == "a test with all its calls took too long"


@isolated
async def test_an_endless_solution_is_out_of_time_and_the_next_test_still_runs() -> None:
    slow = "def add(a, b):\n    while a == 2: pass\n    return a + b"
    found = await verdict(slow, limits=BoxLimits(seconds=60, cpu_seconds=1))
    assert found.text.startswith("1 of 2 hidden tests pass. First failure: add(2, 3) ended the solution")


async def test_whole_numbers_have_any_number_of_digits() -> None:
    power = Task(name="power", prompt="p", tests=("assert power(10, 5000) == 10**5000",))
    found = await examine(power, "def power(a, b): return a**b", find_isolation(unsafe=True), PATIENT)
    assert found.failure is None
    found = await examine(power, "def power(a, b): return -(a**b)", find_isolation(unsafe=True), PATIENT)
    assert (found.failure or "").startswith("power(10, 5000) returned -1000")


@isolated
async def test_a_failure_is_told_without_what_was_expected() -> None:
    assert (await verdict("def add(a, b): return a * b")).failure == "add(2, 3) returned 6"
    assert (await verdict("def add(a, b): return 1 / 0")).failure == (
        "add(2, 3) raised ZeroDivisionError: 'division by zero'"
    )
    assert (await verdict(None)).failure == "there is no solution.py"


@isolated
async def test_tests_take_the_forms_of_the_usual_data_sets() -> None:
    human_eval = Task(
        name="he",
        prompt="p",
        tests=("METADATA = {}\ndef check(candidate):\n    assert candidate((1, 2)) == {1: (2,)}",),
        entry_point="f",
    )
    assert (await verdict("def f(t): return {t[0]: t[1:]}", human_eval)).passed == 1
    assert (await verdict("def f(t): return {t[0]: list(t[1:])}", human_eval)).passed == 0
    imports = Task(
        name="i",
        prompt="p",
        setup="import math\nfrom solution import half",
        tests=(
            "assert math.isclose(half(3), 1.5)",
            "try:\n    half('x')\n    assert False\nexcept TypeError as error:\n    assert error",
            "assert half(float('inf')) == math.inf and half(by=4, value=8) == 2",
        ),
    )
    assert (await verdict("def half(value, by=2): return value / by", imports)).passed == 3


@isolated
async def test_a_broken_test_fails_and_says_that_it_is_the_test() -> None:
    broken = Task(name="b", prompt="p", tests=("assert f(object()) == 1", "1 / 0", "import os\nos._exit(0)"))
    found = await verdict("def f(x): return 1", broken)
    assert found.passed == 0
    found = await verdict("", Task(name="b", prompt="p", tests=("1 / 0",)))
    assert found.failure == "the test itself raised ZeroDivisionError: division by zero"


def test_a_task_needs_a_prompt_and_tests() -> None:
    with pytest.raises(ValueError, match="no prompt"):
        Task(name="t", prompt=" ", tests=("x",))
    with pytest.raises(ValueError, match="no tests"):
        Task(name="t", prompt="p", tests=())
