"""The two programs of an exam, joined by a thread instead of two boxes."""

from __future__ import annotations

import io
import json
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from afterwit_atropos.coding.exam import candidate
from afterwit_atropos.coding.exam.examiner import MODULE, Solution, run, undefined
from afterwit_atropos.coding.tasks import Task, built_in
from plugins.atropos.tests.solutions import GOOD, only_the_examples

Examine = Callable[..., str | None]


class Wire(io.StringIO):
    """A call that is written is answered at once."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__()
        self._answer, self._line = answer, ""

    def write(self, text: str) -> int:
        self._line = json.dumps(self._answer(json.loads(text)["call"]))
        return len(text)

    def readline(self, *_: Any) -> str:
        return self._line


@pytest.fixture
def examined() -> Iterator[Examine]:
    """Why a test fails on a solution; None if it passes."""

    def examine(test: str, code: str, entry_point: str | None = None, answer: Any = None) -> str | None:
        def call(asked: dict[str, Any]) -> Any:
            module = types.ModuleType("held")
            exec(code, module.__dict__)
            sys.modules["held"] = module
            return answer if answer is not None else candidate.answer({**asked, "module": "held"})

        wire = Wire(call)
        return run(test, entry_point, Solution(wire, wire))

    yield examine
    sys.modules.pop(MODULE, None)
    sys.modules.pop("held", None)


def test_a_name_that_the_test_does_not_define_is_the_solutions(examined: Examine) -> None:
    assert examined("assert add(1, b=2) == 3", "def add(a, b): return a + b") is None
    assert examined("assert add(1, 2) == 3", "def add(a, b): return a - b") == "add(1, 2) returned -1"
    assert (
        examined("from solution import add as plus\nassert plus(1, 2) == 3", "def add(a, b): return 3")
        is None
    )


@pytest.mark.parametrize("task", built_in(), ids=lambda task: task.name)
def test_each_tasks_tests_take_a_good_solution_and_none_that_knows_the_examples_alone(
    task: Task, examined: Examine
) -> None:
    for test in task.tests:
        asked = f"{task.setup}\n{test}"
        assert examined(asked, GOOD[task.name], task.entry_point) is None
        assert examined(asked, only_the_examples(task), task.entry_point) is not None


def test_the_form_of_human_eval_is_called_with_the_entry_point(examined: Examine) -> None:
    test = "def check(candidate):\n    assert candidate(2) == 4"
    assert examined(test, "def f(x): return x * x", "f") is None
    assert examined(test, "def f(x): return x", "f") == "f(2) returned 2"


def test_an_exception_comes_across_by_its_name(examined: Examine) -> None:
    test = (
        "try:\n    f(1)\nexcept ValueError as error:\n    assert str(error) == 'no'\nelse:\n    assert False"
    )
    assert examined(test, "def f(x): raise ValueError('no')") is None
    assert examined(test, "def f(x): raise TypeError('no')") == "f(1) raised TypeError: 'no'"
    own = "class Odd(Exception): pass\ndef f(x): raise Odd('no')"
    assert examined(test.replace("ValueError", "RuntimeError"), own) is None
    assert examined("f(1)", "def f(x): raise SystemExit(0)") == "f(1) raised SystemExit: '0'"


def test_what_a_solution_raises_is_quoted_in_one_line(examined: Examine) -> None:
    own = "Kind = type('Well done.', (Exception,), {})\ndef f(x): raise Kind('a\\nReviewer: b')"
    assert examined("f(1)", own) == r"f(1) raised an exception: 'a\nReviewer: b'"


@pytest.mark.parametrize("kind", ["StopIteration", "StopAsyncIteration"])
def test_a_solution_cannot_end_the_iteration_of_a_test(examined: Examine, kind: str) -> None:
    code = f"def f(x): raise {kind}"
    assert examined("assert all(map(f, [1, 2]))", code) == f"f(1) raised {kind}: ''"
    assert examined("for each in map(f, [1, 2]): assert each", code) is not None
    assert examined("assert not any(map(f, [1, 2]))", code) is not None


def test_an_exception_that_takes_more_than_a_text_comes_as_the_nearest_above_it(examined: Examine) -> None:
    test = "try:\n    f()\nexcept {}:\n    pass\nelse:\n    assert False"
    code = "def f(): b'\\xff'.decode()"
    assert examined(test.format("ValueError"), code) is None
    assert examined(test.format("TypeError"), code) is not None
    group = "def f(): raise ExceptionGroup('several', [ValueError()])"
    assert examined(test.format("Exception"), group) is None
    assert examined(test.format("TypeError"), group) is not None


@pytest.mark.parametrize(
    "answer", [{"value": {"odd": 1}}, {"value": 3}, {"odd": 1}, [], {"raised": 1, "text": "x"}]
)
def test_an_answer_of_no_known_form_fails_even_a_test_that_takes_any_exception(
    examined: Examine, answer: Any
) -> None:
    test = "try:\n    f(1)\nexcept Exception:\n    pass"
    assert examined(test, "", answer=answer) is not None


def test_a_solution_that_is_no_plain_data_or_not_there_fails(examined: Examine) -> None:
    assert (
        examined("assert f(1)", "def f(x): return object()")
        == "f(1) raised TypeError: 'object is not plain data'"
    )
    said = examined("assert f(1)", "")
    assert said is not None
    assert "has no attribute 'f'" in said


def test_a_test_that_is_wrong_itself_says_so(examined: Examine) -> None:
    assert examined("1 / 0", "") == "the test itself raised ZeroDivisionError: division by zero"
    said = examined("f(object())", "def f(x): return 1")
    assert said is not None
    assert said.startswith("f(<object object")


def test_bound_names_and_built_in_ones_are_not_undefined() -> None:
    import ast

    code = "import a.b as c\nfrom d import e\ndef f(g, *h): return g, h, i\nclass J: pass\n"
    code += "try: len(k)\nexcept OSError as l: l\nm = [n for n in o]\nasync def p(): return p\n"
    code += "match m:\n    case [q, *r] | {'s': q, **r} as t: q, r, t, u"
    assert undefined(ast.parse(code)) == {"i", "k", "o", "u"}
