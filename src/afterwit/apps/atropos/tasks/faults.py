"""What makes a test of a data set say nothing about a solution."""

from __future__ import annotations

import ast
import sys
from importlib.machinery import PathFinder
from site import getsitepackages

from afterwit.apps.atropos.tasks.exam.examiner import FORM, MODULE, undefined
from afterwit.apps.atropos.tasks.task import Task

DEBIANS = ("lib/python3/dist-packages", f"local/lib/python3.{sys.version_info.minor}/dist-packages")
"""Where Debian's Python has its packages, which it does not say in a virtual environment."""


def check_test(task: Task, test: str) -> None:
    """ValueError for a test that passes or fails whatever the solution is: it is no Python, imports what a
    box has not, or never calls the solution."""
    try:
        parsed = ast.parse(f"{task.setup}\n{test}")
    except SyntaxError as error:
        raise ValueError(f"a test is no Python ({error.msg}, line {error.lineno}): {test[:80]!r}") from error
    if absent := _absent(parsed):
        raise ValueError(
            f"a test imports {', '.join(absent)}, which the Python of a box does not have "
            f"({sys.base_prefix}): install it there, or leave the row out: {test[:80]!r}"
        )
    defined = {node.name for node in ast.walk(parsed) if isinstance(node, ast.FunctionDef)}
    if FORM in defined and task.entry_point:
        return
    if not undefined(parsed) and not _imports_the_solution(parsed):
        more = ": set entry_point_column" if FORM in defined else ""
        raise ValueError(f"a test never calls the solution{more}: {test[:80]!r}")


def _absent(parsed: ast.Module) -> list[str]:
    """Modules that are imported and not in a box, which has the base's packages but no environment's."""
    named = {name for node in ast.walk(parsed) for name in _imported(node)} - {
        MODULE,
        *sys.stdlib_module_names,
    }
    base = [*getsitepackages([sys.base_prefix]), *(f"{sys.base_prefix}/{folder}" for folder in DEBIANS)]
    return [name for name in sorted(named) if PathFinder.find_spec(name, base) is None]


def _imported(node: ast.AST) -> list[str]:
    """The outermost modules that a statement imports."""
    match node:
        case ast.Import(names=names):
            return [each.name.partition(".")[0] for each in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module.partition(".")[0]]
    return []


def _imports_the_solution(parsed: ast.Module) -> bool:
    for node in ast.walk(parsed):
        if isinstance(node, ast.ImportFrom) and node.module == MODULE:
            return True
        if isinstance(node, ast.Import) and any(each.name == MODULE for each in node.names):
            return True
    return False
