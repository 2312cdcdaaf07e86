"""Tasks from a data set: a local file or folder, or a data set of the Hugging Face hub by its name.

All of it is checked before a run begins, and nothing is replaced by anything else.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.machinery import PathFinder
from itertools import chain
from pathlib import Path
from site import getsitepackages
from typing import Any, cast

from afterwit.apps.atropos.tasks.exam.examiner import FORM, MODULE, undefined
from afterwit.apps.atropos.tasks.task import Task
from afterwit.core.errors import SettingError

Rows = Sequence[Mapping[str, Any]]
FILES = (".jsonl", ".json", ".parquet")
SAVED = ("dataset_info.json", "dataset_dict.json")
"""One of them is in a folder that the `datasets` library saved."""

DEBIANS = ("lib/python3/dist-packages", f"local/lib/python3.{sys.version_info.minor}/dist-packages")
"""Where Debian's Python has its packages, which it does not say in a virtual environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSettings:
    """Which data set, and which of its columns."""

    name: str
    """A file (.jsonl, .json, .parquet), a folder as the `datasets` library reads or saves it, or a name on
    the hub."""
    split: str = "train"
    """Of a data set of the hub, or of a folder."""
    config: str | None = None
    """The hub's word for one of several data sets under a name."""
    prompt_column: str = "prompt"
    tests_column: str = "tests"
    """A Python program or several in a list, see `exam/examiner.py`."""
    setup_column: str | None = None
    """Python that runs before each test of its row."""
    entry_point_column: str | None = None
    """The function that tests in HumanEval's form are called with."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns that must be there, by the setting that names them."""
        named = {
            "prompt_column": self.prompt_column,
            "tests_column": self.tests_column,
            "setup_column": self.setup_column,
            "entry_point_column": self.entry_point_column,
        }
        return {setting: column for setting, column in named.items() if column is not None}


Load = Callable[[DatasetSettings], Iterable[Mapping[str, Any]]]


def from_hub(settings: DatasetSettings) -> Iterable[Mapping[str, Any]]:
    """The rows of a folder, or of a data set of the hub. SettingError if the library is absent or refuses."""
    try:
        from datasets import load_dataset, load_from_disk
    except ImportError as error:
        raise SettingError(
            f'"{settings.name}" is no file, and any other data set needs: pip install "afterwit[atropos]"'
        ) from error
    folder = Path(settings.name).expanduser()
    try:
        if not any((folder / saved).is_file() for saved in SAVED):
            name = str(folder) if folder.is_dir() else settings.name
            return cast(Rows, load_dataset(name, settings.config, split=settings.split))
        held = load_from_disk(str(folder))
    except Exception as error:  # the library raises whatever the hub and the file formats do
        raise SettingError(f'the data set "{settings.name}" cannot be loaded: {error}') from error
    if not isinstance(held, dict):
        return cast(Rows, held)
    if settings.split not in held:
        raise SettingError(
            f'the data set "{settings.name}" has no split "{settings.split}"'
            f"{_nearest(settings.split, held)}; it has {', '.join(held)}"
        )
    return cast(Rows, held[settings.split])


def cache_of_the_hub() -> Path:
    """Where the library keeps data sets of the hub. ImportError without it."""
    from datasets import config

    return Path(config.HF_DATASETS_CACHE)


def load_tasks(settings: DatasetSettings, *, hub: Load = from_hub) -> tuple[Task, ...]:
    """All tasks of a data set. Raises SettingError that names the row or the nearest column."""
    rows = iter(_local(Path(settings.name)) if _is_file(settings.name) else hub(settings))
    if (first := next(rows, None)) is None:
        raise SettingError(f'the data set "{settings.name}" has no rows')
    _check_columns(settings, first)
    return tuple(_task(settings, number, row) for number, row in enumerate(chain((first,), rows)))


def _is_file(name: str) -> bool:
    path = Path(name).expanduser()
    if path.is_dir():
        return False
    return path.exists() or path.suffix in FILES or name.startswith((".", "/", "~"))


def _local(path: Path) -> Rows:
    path = path.expanduser()
    if not path.is_file():
        beside = [each.name for each in path.parent.glob("*")] if path.parent.is_dir() else []
        raise SettingError(f"there is no file {path}{_nearest(path.name, beside)}")
    try:
        match path.suffix:
            case ".jsonl":
                lines = path.read_text(encoding="utf-8").splitlines()
                rows = [json.loads(line) for line in lines if line.strip()]
            case ".json":
                rows = json.loads(path.read_text(encoding="utf-8"))
            case ".parquet":
                rows = _parquet(path)
            case _:
                raise SettingError(f"{path} is none of {', '.join(FILES)}")
    except ValueError as error:
        raise SettingError(f"{path} cannot be read: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SettingError(f"{path} is no list of objects with a prompt and tests each")
    return rows


def _parquet(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise SettingError(f'{path} needs: pip install "afterwit[atropos]"') from error
    return parquet.read_table(path).to_pylist()


def _check_columns(settings: DatasetSettings, row: Mapping[str, Any]) -> None:
    for setting, column in settings.columns.items():
        if column not in row:
            raise SettingError(
                f'the data set "{settings.name}" has no column "{column}" ({setting})'
                f"{_nearest(column, row)}; it has {', '.join(row)}"
            )


def _task(settings: DatasetSettings, number: int, row: Mapping[str, Any]) -> Task:
    where = f'row {number} of "{settings.name}"'
    try:
        held = {setting: row[column] for setting, column in settings.columns.items()}
        task = Task(
            name=f"{Path(settings.name).stem}/{number}",
            prompt=_text(held["prompt_column"], settings.prompt_column),
            tests=_tests(held["tests_column"], settings.tests_column),
            setup=_text(held.get("setup_column") or "", settings.setup_column or ""),
            entry_point=held.get("entry_point_column"),
        )
        for test in task.tests:
            _check_test(task, test)
    except KeyError as error:
        raise SettingError(f"{where} has no column {error}") from error
    except ValueError as error:
        raise SettingError(f"{where}: {error}") from error
    return task


def _text(value: Any, column: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f'"{column}" is {type(value).__name__}, not a text')
    return value


def _tests(value: Any, column: str) -> tuple[str, ...]:
    """One program, a list of them, or such a list as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = json.loads(value)
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f'"{column}" is neither a Python program nor a list of such')
    return tuple(value)


def _check_test(task: Task, test: str) -> None:
    """A test that cannot be read, or that never calls the solution, would pass or fail whatever it is."""
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


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f'; the nearest is "{near[0]}"' if near else ""
