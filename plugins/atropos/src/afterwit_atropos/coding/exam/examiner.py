"""Runs a task's tests, one at a time, apart from the solution, whose functions it calls by lines of JSON.

A test is Python that raises if the solution is wrong. A name that it does not define is a function of the
solution; so is whatever it imports from `solution`. HumanEval's form is understood: a function `check`, which
is called with the entry point.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any, TextIO

from .plain import decode, encode

MODULE = "solution"

FORM = "check"


class Broken(BaseException):
    """The solution ended, or its answer is not plain data. Not an Exception: tests cannot catch it."""


class Solution:
    """The functions of the solution, as a test calls them."""

    def __init__(self, calls: TextIO, answers: TextIO) -> None:
        self._calls, self._answers = calls, answers
        self.last = ""
        """The latest call and its outcome, in words."""

    def function(self, name: str) -> Callable[..., Any]:
        """The function of this name."""
        if name.startswith("__"):  # attributes that the import system reads
            raise AttributeError(name)

        def call(*given: Any, **named: Any) -> Any:
            return self._call(name, given, named)

        return call

    def _call(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        said = [*map(repr, given), *(f"{key}={value!r}" for key, value in named.items())]
        self.last = f"{name}({', '.join(said)})"
        forms = {"given": encode(given), "named": {key: encode(value) for key, value in named.items()}}
        self._calls.write(json.dumps({"call": {"module": MODULE, "name": name, **forms}}) + "\n")
        self._calls.flush()
        return self._read(json.loads(self._answers.readline() or "null"))

    def _read(self, answer: dict[str, Any] | None) -> Any:
        match answer:
            case {"value": form}:
                try:
                    value = decode(form)
                except (ValueError, TypeError, RecursionError) as error:
                    raise Broken(f"{self.last} returned what cannot be read") from error
                self.last += f" returned {value!r}"
                return value
            case {"raised": str(kind), "text": str(text)}:
                self.last += f" raised {kind if kind.isidentifier() else 'an exception'}: {text!r}"
                raise _exception(kind, text)
        raise Broken(f"{self.last} ended the solution or ran out of its limits")


def run(test: str, entry_point: str | None, solution: Solution) -> str | None:
    """None if the test passes, else the reason, without the value that it expects."""
    solution.last = ""
    module = types.ModuleType(MODULE)
    module.__getattr__ = solution.function  # type: ignore[method-assign]
    sys.modules[MODULE] = module
    try:
        parsed = ast.parse(test)
        names = {name: solution.function(name) for name in undefined(parsed)}
        scope: dict[str, Any] = {"__name__": "tests", **names}
        exec(compile(parsed, "tests", "exec"), scope)
        if entry_point and isinstance(check := scope.get(FORM), types.FunctionType):
            check(solution.function(entry_point))
    except Broken as error:
        return str(error)
    except BaseException as error:
        return solution.last or f"the test itself raised {type(error).__name__}: {error}"
    return None


def undefined(parsed: ast.Module) -> set[str]:
    """Names that are read and never bound."""
    read, bound = set(), set(dir(builtins))
    for node in ast.walk(parsed):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound.add(name)
            case (
                ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name))
            ):
                bound.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound |= {(each.asname or each.name).split(".")[0] for each in names}
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
    return read - bound


def _exception(kind: str, text: str) -> Exception:
    """A built-in exception of this name, or the nearest above it that takes a text alone.

    One that ends an iteration would make `all(map(f, values))` pass: it is a RuntimeError here, as it is in a
    generator.
    """
    found = getattr(builtins, kind, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return RuntimeError(text)
    if issubclass(found, StopIteration | StopAsyncIteration):
        return RuntimeError(f"{kind}: {text}")
    for each in found.__mro__:
        try:
            made = each(text)
        except TypeError:
            continue
        if isinstance(made, Exception):
            return made
    return RuntimeError(text)


def main() -> None:
    """Run each incoming test and report its outcome."""
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of a test is discarded
    heard = os.fdopen(os.dup(0), "r", encoding="utf-8")
    solution = Solution(said, heard)
    sys.set_int_max_str_digits(0)
    for line in iter(heard.readline, ""):
        asked = json.loads(line)
        failure = run(asked["test"], asked["entry_point"], solution)
        said.write(json.dumps({"failure": failure and failure[:500]}) + "\n")
        said.flush()


if __name__ == "__main__":
    main()
