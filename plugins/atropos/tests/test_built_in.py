"""Hidden tests of the built-in tasks: a solution that ignores its arguments fails each test."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from afterwit_atropos.coding.exam.examiner import undefined
from afterwit_atropos.coding.tasks import Task, built_in
from tests.products import some

BLIND: dict[str, Callable[..., Any]] = {
    "gives its argument back": lambda *given: given[0],
    "sorts its argument": lambda *given: sorted(given[0]),
    "answers nothing": lambda *given: None,
}


def constants(task: Task) -> Iterator[Any]:
    """Every value in the task's tests, or in the examples of its prompt."""
    examples = [line for line in task.prompt.splitlines() if " == " in line]
    for text in (*task.tests, *examples):
        for node in ast.walk(ast.parse(text)):
            try:
                yield ast.literal_eval(node)  # type: ignore[arg-type]
            except (ValueError, TypeError):
                continue


def passes(task: Task, test: str, solution: Callable[..., Any]) -> bool:
    parsed = ast.parse(f"{task.setup}\n{test}")
    try:
        exec(compile(parsed, task.name, "exec"), dict.fromkeys(undefined(parsed), solution))
    except Exception:
        return False
    return True


@pytest.mark.parametrize("task", some(2, built_in()), ids=lambda task: task.name)
def test_a_constant_answer_passes_no_hidden_test(task: Task) -> None:
    for value in constants(task):
        for test in task.tests:
            assert not passes(task, test, lambda *given, value=value: value), (value, test)


@pytest.mark.parametrize("how", BLIND)
@pytest.mark.parametrize("task", built_in(), ids=lambda task: task.name)
def test_a_solution_that_does_no_work_passes_no_hidden_test(task: Task, how: str) -> None:
    for test in task.tests:
        assert not passes(task, test, BLIND[how]), test
