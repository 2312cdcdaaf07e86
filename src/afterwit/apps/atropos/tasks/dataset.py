"""Tasks from a data set. All of it is checked before a run begins; nothing is replaced by anything else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from afterwit.apps.atropos.tasks.faults import check_test
from afterwit.apps.atropos.tasks.rows import DatasetSettings, from_hub, is_file, local, nearest
from afterwit.apps.atropos.tasks.task import Task
from afterwit.core.errors import SettingError

Load = Callable[[DatasetSettings], Iterable[Mapping[str, Any]]]


def load_tasks(settings: DatasetSettings, *, hub: Load = from_hub) -> tuple[Task, ...]:
    """All tasks of a data set. Raises SettingError that names the row or the nearest column."""
    rows = iter(local(Path(settings.name)) if is_file(settings.name) else hub(settings))
    if (first := next(rows, None)) is None:
        raise SettingError(f'the data set "{settings.name}" has no rows')
    _check_columns(settings, first)
    return tuple(_task(settings, number, row) for number, row in enumerate(chain((first,), rows)))


def _check_columns(settings: DatasetSettings, row: Mapping[str, Any]) -> None:
    for setting, column in settings.columns.items():
        if column not in row:
            raise SettingError(
                f'the data set "{settings.name}" has no column "{column}" ({setting})'
                f"{nearest(column, row)}; it has {', '.join(row)}"
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
    """One program, a list of them, or such a list as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = json.loads(value)
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f'"{column}" is neither a Python program nor a list of such')
    return tuple(value)
