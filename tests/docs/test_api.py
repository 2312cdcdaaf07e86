"""Plugins and examples import what `afterwit.api` exports, and nothing else of Afterwit."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from afterwit.dialects.dialect import ChoiceDelta, Dialect, Encoder
from afterwit.dialects.request import ModelRequest
from afterwit.engines.port import Capabilities, Engine, Generate, Step

ROOT = Path(__file__).parents[2]
API = ROOT / "src" / "afterwit" / "api"
MODULES = sorted(f"afterwit.api.{file.stem}" for file in API.glob("[a-z]*.py"))
EXTEND = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
PACKAGES = sorted([*(ROOT / "plugins").glob("*/src/**/*.py"), *(ROOT / "examples").glob("*/*.py")])


@cache
def imports(file: Path) -> list[tuple[str, str]]:
    """Each name that a file imports of Afterwit, with its module."""
    found = list[tuple[str, str]]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "afterwit":
            found += ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            found += ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "afterwit")
    return found


@pytest.mark.parametrize("file", PACKAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_plugins_and_examples_import_the_api_alone(file: Path) -> None:
    for module, name in imports(file):
        if (module, name) != ("afterwit", "__version__"):
            assert module in MODULES, f"{module} is not public: export {name} from a module of afterwit.api"
            assert name in import_module(module).__all__


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_the_api_has_imports_and_all_alone(module: str) -> None:
    tree = ast.parse((API / f"{module.rpartition('.')[2]}.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    *body, last = tree.body[1:]
    assert all(isinstance(node, ast.ImportFrom) for node in body)
    assert isinstance(last, ast.Assign)
    imported = {alias.asname or alias.name for node in body for alias in getattr(node, "names", ())}
    exported = import_module(module).__all__
    assert sorted(imported - {"annotations"}) == sorted(exported)
    assert len(set(exported)) == len(exported)


@pytest.mark.parametrize("module", MODULES)
def test_every_exported_name_is_used_or_documented(module: str) -> None:
    used = {name for file in PACKAGES for where, name in imports(file) if where == module}
    idle = [name for name in import_module(module).__all__ if name not in used and f"`{name}`" not in EXTEND]
    assert not idle


@pytest.mark.parametrize(
    "part", [Dialect, ModelRequest, ChoiceDelta, Encoder, Engine, Generate, Step, Capabilities]
)
def test_every_type_that_an_engine_or_a_dialect_meets_is_exported(part: type) -> None:
    methods = [each for name, each in vars(part).items() if name[0] != "_" and isfunction(each)]
    met = {
        one for each in (part, *methods) for hint in get_type_hints(each).values() for one in classes(hint)
    }
    assert {each.__name__ for each in met} <= {
        name for module in MODULES for name in import_module(module).__all__
    }


def classes(hint: Any) -> Iterator[type]:
    """Afterwit's own classes in a type hint."""
    if isinstance(hint, type) and hint.__module__.startswith("afterwit"):
        yield hint
    for part in hint if isinstance(hint, list) else get_args(hint):
        yield from classes(part)


def test_no_name_is_exported_twice() -> None:
    names = [name for module in MODULES for name in import_module(module).__all__]
    assert sorted(set(names)) == sorted(names)


def test_the_product_does_not_import_its_api() -> None:
    inside = [file for file in (ROOT / "src" / "afterwit").glob("**/*.py") if file.parent != API]
    assert not [file for file in inside if "afterwit.api" in file.read_text(encoding="utf-8")]


def loaded(*modules: str) -> set[str]:
    """The packages that a process loads with these modules of the API."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return {name.partition(".")[0] for name in found.split()}


def test_the_shared_types_need_the_standard_library_alone() -> None:
    assert loaded("afterwit.api.turns") - loaded("sys") <= {"afterwit", *sys.stdlib_module_names}


def test_only_training_needs_torch() -> None:
    light = [module for module in MODULES if module.rpartition(".")[2] not in ("objective", "learning")]
    others = (
        "afterwit.running.train",  # a learner waits until it is the only one
        "afterwit.home.forget",  # an order to forget
        "afterwit.doctor.report",  # the machine is tested
    )
    assert {"torch", "transformers"}.isdisjoint(loaded(*light, *others))
