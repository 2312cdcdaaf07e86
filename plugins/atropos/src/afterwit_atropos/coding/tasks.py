"""Coding tasks: the prompt, and the hidden tests that decide; built in, or from a data set."""

from __future__ import annotations

import ast
import json
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.machinery import PathFinder
from itertools import chain
from pathlib import Path
from site import getsitepackages
from typing import Any, cast

from afterwit.api.turns import SettingError
from afterwit_atropos.coding.exam.examiner import FORM, MODULE, undefined
from afterwit_atropos.sandbox.box import Box, BoxEnded, open_box
from afterwit_atropos.sandbox.isolation import BoxLimits, Isolation

SOLUTION = "solution.py"
"""The file that is examined."""

BUILT_IN = (
    "fizzbuzz",
    "palindrome",
    "two_sum",
    "flatten",
    "longest_common_prefix",
    "group_anagrams",
    "valid_parentheses",
    "merge_intervals",
)
"""Files of the built-in tasks, easiest first: the prompt with its visible examples, and the hidden tests."""

Rows = Sequence[Mapping[str, Any]]

PUBLISHED = {"prompt": "task", "tests": "test_code"}
"""Columns of the published environment's data sets, read where those of our names are absent."""

FILES = (".jsonl", ".json", ".parquet")

SAVED = ("dataset_info.json", "dataset_dict.json")
"""A folder that the `datasets` library saved contains one of these files."""

DEBIANS = ("lib/python3/dist-packages", f"local/lib/python3.{sys.version_info.minor}/dist-packages")
"""The package folder of Debian's Python, which a virtual environment does not list."""

PROGRAMS = Path(__file__).parent / "exam"

MOST_CALLS = 10_000
"""Calls of one test."""

LONGEST = 6
"""A test's time, as a multiple of what one call may take."""

GONE = (BoxEnded, OSError)
"""Errors of a box that has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One coding task."""

    name: str
    prompt: str
    """With the examples that the agent may see."""
    tests: tuple[str, ...]
    """Python statements or programs that raise if the solution is wrong; see `exam/examiner.py`."""
    setup: str = ""
    """Python that runs before each test."""
    entry_point: str | None = None
    """The function that tests in HumanEval's form are called with."""

    def __post_init__(self) -> None:
        if not self.prompt.strip():
            raise ValueError(f"task {self.name} has no prompt")
        if not self.tests or not all(test.strip() for test in self.tests):
            raise ValueError(f"task {self.name} has no tests, or an empty one")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestVerdict:
    """The outcome of a task's own tests."""

    __test__ = False  # pytest takes the name for one of its own

    passed: int
    total: int
    failure: str | None
    """The first failing call and what it gave, without what was expected; None if all pass."""

    @property
    def correctness(self) -> float:
        """The share of tests that pass."""
        return self.passed / self.total

    @property
    def text(self) -> str:
        """The verdict in words."""
        said = f"{self.passed} of {self.total} hidden tests pass."
        return said if self.failure is None else f"{said} First failure: {self.failure}"


def built_in() -> tuple[Task, ...]:
    """Every built-in task, easiest first."""
    return tuple(_built_in(name) for name in BUILT_IN)


def _built_in(name: str) -> Task:
    file = Path(__file__).parent / "built_in" / f"{name}.toml"
    held = tomllib.loads(file.read_text(encoding="utf-8"))
    return Task(
        name=name, prompt=held["prompt"].strip(), tests=tuple(held["tests"]), setup=held.get("setup", "")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSettings:
    """A data set and its columns, under the names of the environment's flags."""

    dataset_name: str
    """A file (.jsonl, .json, .parquet), a folder as the `datasets` library reads or saves it, or a name on
    the hub."""
    dataset_split: str = "train"
    """Of a data set of the hub, or of a folder."""
    dataset_config: str | None = None
    """The hub's word for one of several data sets under a name."""
    prompt_field: str = "prompt"
    tests_field: str = "tests"
    """A Python program or several in a list, see `exam/examiner.py`."""
    setup_field: str | None = None
    """Python that runs before each test of its row."""
    entry_point_field: str | None = None
    """The function that tests in HumanEval's form are called with."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns that must be there, by the setting that names them."""
        names = ("prompt_field", "tests_field", "setup_field", "entry_point_field")
        return {name: column for name in names if (column := getattr(self, name)) is not None}


def from_hub(settings: DatasetSettings) -> Iterable[Mapping[str, Any]]:
    """The rows of a folder, or of a data set of the hub. SettingError if the library is absent or refuses."""
    try:
        from datasets import load_dataset, load_from_disk
    except ImportError as error:
        raise SettingError(
            f'"{settings.dataset_name}" is not a file; other data sets need: '
            'pip install "afterwit-atropos[library]"'
        ) from error
    folder = Path(settings.dataset_name).expanduser()
    try:
        if not any((folder / saved).is_file() for saved in SAVED):
            name = str(folder) if folder.is_dir() else settings.dataset_name
            return cast(Rows, load_dataset(name, settings.dataset_config, split=settings.dataset_split))
        held = load_from_disk(str(folder))
    except Exception as error:  # the library raises whatever the hub and the file formats do
        raise SettingError(f'the data set "{settings.dataset_name}" cannot be loaded: {error}') from error
    if not isinstance(held, dict):
        return cast(Rows, held)
    if settings.dataset_split not in held:
        raise SettingError(
            f'the data set "{settings.dataset_name}" has no split "{settings.dataset_split}"'
            f"{nearest(settings.dataset_split, held)}; it has {', '.join(held)}"
        )
    return cast(Rows, held[settings.dataset_split])


def cache_of_the_hub() -> Path:
    """The library's cache of hub data sets. Raises ImportError without the library."""
    from datasets import config

    return Path(config.HF_DATASETS_CACHE)


def is_file(name: str) -> bool:
    """Whether a data set's name is that of a file, be it there or not."""
    path = Path(name).expanduser()
    if path.is_dir():
        return False
    return path.exists() or path.suffix in FILES or name.startswith((".", "/", "~"))


def local(path: Path) -> Rows:
    """The rows of a file. Raises SettingError if it is missing or not a list of objects."""
    path = path.expanduser()
    if not path.is_file():
        beside = [each.name for each in path.parent.glob("*")] if path.parent.is_dir() else []
        raise SettingError(f"there is no file {path}{nearest(path.name, beside)}")
    try:
        match path.suffix:
            case ".jsonl":
                lines = path.read_text(encoding="utf-8-sig").split("\n")  # others may be within texts
                rows = [json.loads(line) for line in lines if line.strip()]
            case ".json":
                rows = json.loads(path.read_text(encoding="utf-8-sig"))
            case ".parquet":
                rows = _parquet(path)
            case _:
                raise SettingError(f"{path} is none of {', '.join(FILES)}")
    except (OSError, ValueError) as error:
        raise SettingError(f"{path} cannot be read: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SettingError(f"{path} is not a list of objects with a prompt and tests each")
    return rows


def _parquet(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise SettingError(f'{path} needs: pip install "afterwit-atropos[library]"') from error
    return parquet.read_table(path).to_pylist()


def nearest(name: str, known: Iterable[str]) -> str:
    """The name that is like it, as the end of a sentence; empty if none is."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f'; the nearest is "{near[0]}"' if near else ""


Load = Callable[[DatasetSettings], Iterable[Mapping[str, Any]]]


def load_tasks(settings: DatasetSettings, *, hub: Load = from_hub) -> tuple[Task, ...]:
    """All tasks of a data set. Raises SettingError that names the row or the nearest column."""
    rows = iter(local(Path(settings.dataset_name)) if is_file(settings.dataset_name) else hub(settings))
    if (first := next(rows, None)) is None:
        raise SettingError(f'the data set "{settings.dataset_name}" has no rows')
    published = {
        setting: theirs
        for setting, ours in settings.columns.items()
        if ours not in first and (theirs := PUBLISHED.get(ours, ours)) in first
    }
    settings = replace(settings, **published)
    _check_columns(settings, first)
    return tuple(_task(settings, number, row) for number, row in enumerate(chain((first,), rows)))


def _check_columns(settings: DatasetSettings, row: Mapping[str, Any]) -> None:
    for setting, column in settings.columns.items():
        if column not in row:
            raise SettingError(
                f'the data set "{settings.dataset_name}" has no column "{column}" ({setting})'
                f"{nearest(column, row)}; it has {', '.join(row)}"
            )


def _task(settings: DatasetSettings, number: int, row: Mapping[str, Any]) -> Task:
    where = f'row {number} of "{settings.dataset_name}"'
    try:
        held = {setting: row[column] for setting, column in settings.columns.items()}
        task = Task(
            name=f"{Path(settings.dataset_name).stem}/{number}",
            prompt=_text(held["prompt_field"], settings.prompt_field),
            tests=_tests(held["tests_field"], settings.tests_field),
            setup=_text(held.get("setup_field") or "", settings.setup_field or ""),
            entry_point=_text(held.get("entry_point_field") or "", settings.entry_point_field or "") or None,
        )
        for test in task.tests:
            check_test(task, test)
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
    """One program, a list of programs, or such a list as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = json.loads(value)
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f'"{column}" is neither a Python program nor a list of such')
    return tuple(value)


def check_test(task: Task, test: str) -> None:
    """ValueError for a test that does not depend on the solution: it is not Python, imports what a
    box has not, or never calls the solution."""
    try:
        parsed = ast.parse(f"{task.setup}\n{test}")
    except SyntaxError as error:
        raise ValueError(f"a test is not Python ({error.msg}, line {error.lineno}): {test[:80]!r}") from error
    if absent := _absent(parsed):
        raise ValueError(
            f"a test imports {', '.join(absent)}, which the Python of a box does not have "
            f"({sys.base_prefix}): install it there, or leave the row out: {test[:80]!r}"
        )
    defined = {node.name for node in ast.walk(parsed) if isinstance(node, ast.FunctionDef)}
    if FORM in defined and task.entry_point:
        return
    if not undefined(parsed) and MODULE not in _imported(parsed):
        more = ": set entry_point_field" if FORM in defined else ""
        raise ValueError(f"a test never calls the solution{more}: {test[:80]!r}")


def _absent(parsed: ast.Module) -> list[str]:
    """Modules that are imported and not in a box, which has the base's packages but no environment's."""
    base = [*getsitepackages([sys.base_prefix]), *(f"{sys.base_prefix}/{folder}" for folder in DEBIANS)]
    named = _imported(parsed) - {MODULE, *sys.stdlib_module_names}
    return [name for name in sorted(named) if PathFinder.find_spec(name, base) is None]


def _imported(parsed: ast.Module) -> set[str]:
    """The outermost modules that a program imports."""
    named: list[str] = []
    for node in ast.walk(parsed):
        match node:
            case ast.Import(names=names):
                named += [each.name for each in names]
            case ast.ImportFrom(module=str(module), level=0):
                named.append(module)
    return {name.partition(".")[0] for name in named}


async def examine(
    task: Task,
    solution: str | None,
    walls: Isolation,
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
    """A function that returns whether this many seconds have passed since now."""
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
        for box in (examiner, candidate):
            with suppress(*GONE):  # a box that has ended, as at a cancellation, has nothing to stop
                await box.stop()


async def _carry(
    asked: dict[str, Any], examiner: Box, candidate: Box, is_late: Callable[[], bool]
) -> str | None:
    line = json.dumps(asked)
    for _ in range(MOST_CALLS):
        if is_late():
            return "a test with all its calls took too long"
        said = _object(await examiner.ask(line))
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
