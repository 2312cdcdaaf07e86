"""A data set's tasks are checked before a run, and what is wrong is named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

import afterwit_atropos
from afterwit.errors import SettingError
from afterwit_atropos.coding.tasks import DatasetSettings, Task, examine, load_tasks
from afterwit_atropos.sandbox.isolation import BoxLimits, seen_in
from plugins.atropos.tests.sandbox.boxes import here, isolated

ROW = {"prompt": "Write add(a, b).", "tests": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]}


def written(path: Path, rows: list[Mapping[str, Any]]) -> str:
    match path.suffix:
        case ".jsonl":
            path.write_text("\n\n".join(json.dumps(row) for row in rows))
        case ".json":
            path.write_text(json.dumps(rows))
        case ".parquet":
            parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


def loaded(rows: list[Mapping[str, Any]], **settings: Any) -> tuple[Task, ...]:
    return load_tasks(DatasetSettings(dataset_name="some/set", **settings), hub=lambda asked: rows)


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
def test_each_format_gives_the_same_tasks(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"tasks.{suffix}", [ROW, ROW])
    first, second = load_tasks(DatasetSettings(dataset_name=path))
    assert (first.prompt, first.tests, first.name) == (ROW["prompt"], tuple(ROW["tests"]), "tasks/0")
    assert second.name == "tasks/1"


def test_the_published_columns_are_read_where_those_of_our_names_are_absent() -> None:
    published = {"task": ROW["prompt"], "test_code": "from solution import add\nassert add(1, 2) == 3\n"}
    (task,) = loaded([published])
    assert (task.prompt, task.tests) == (ROW["prompt"], (published["test_code"],))
    (ours,) = loaded([{**published, **ROW}])
    assert ours.tests == tuple(ROW["tests"])
    with pytest.raises(SettingError, match=r'no column "question" \(prompt_field\)'):
        loaded([published], prompt_field="question")


def test_a_line_ends_at_its_line_feed_alone(tmp_path: Path) -> None:
    said = json.dumps({**ROW, "prompt": "one\u2028two\x85three\u2029"}, ensure_ascii=False)
    (tmp_path / "tasks.jsonl").write_bytes(f"\ufeff{said}\n{said}\n".encode())
    first, second = load_tasks(DatasetSettings(dataset_name=str(tmp_path / "tasks.jsonl")))
    assert first.prompt == second.prompt == "one\u2028two\x85three\u2029"


def test_a_name_that_is_no_file_is_one_of_the_hub() -> None:
    asked: list[DatasetSettings] = []

    def hub(settings: DatasetSettings) -> list[Mapping[str, Any]]:
        asked.append(settings)
        return [{"text": "p", "test_list": json.dumps(ROW["tests"]), "test_setup_code": "import math"}]

    settings = DatasetSettings(
        dataset_name="mbpp",
        dataset_split="test",
        prompt_field="text",
        tests_field="test_list",
        setup_field="test_setup_code",
    )
    [task] = load_tasks(settings, hub=hub)
    assert asked == [settings]
    assert (task.tests, task.setup) == (tuple(ROW["tests"]), "import math")


def test_the_form_of_human_eval_is_taken_with_its_entry_point() -> None:
    row = {"prompt": "p", "test": "def check(candidate):\n    assert candidate(1) == 2", "entry_point": "f"}
    [task] = loaded([row], tests_field="test", entry_point_field="entry_point")
    assert task.entry_point == "f"
    with pytest.raises(SettingError, match=r'row 0 of .* "entry_point" is int, not a text'):
        loaded([{**row, "entry_point": 3}], tests_field="test", entry_point_field="entry_point")
    with pytest.raises(SettingError, match="never calls the solution: set entry_point_field"):
        loaded([row], tests_field="test")


def test_a_missing_column_is_named_with_the_nearest() -> None:
    with pytest.raises(
        SettingError, match=r'has no column "promt" \(prompt_field\); the nearest is "prompt"'
    ):
        loaded([ROW], prompt_field="promt")
    with pytest.raises(SettingError, match=r'no column "zzz" \(setup_field\); it has prompt, tests'):
        loaded([ROW], setup_field="zzz")
    with pytest.raises(SettingError, match=r"row 1 of .* has no column 'tests'"):
        loaded([ROW, {"prompt": "p"}])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompt": 3}, 'row 0 of "some/set": "prompt" is int, not a text'),
        ({"prompt": " "}, "has no prompt"),
        ({"tests": []}, "has no tests"),
        ({"tests": {"input": "1"}}, "neither a Python program nor a list"),
        ({"tests": [1]}, "neither a Python program nor a list"),
        ({"tests": "assert add(1, 2) = 3"}, "a test is not Python"),
        ({"tests": '["assert add(1,'}, "row 0"),
        ({"tests": "1 2 3"}, "a test is not Python"),
        ({"tests": "assert 1 + 1 == 2"}, "a test never calls the solution"),
        ({"tests": "match 1:\n    case n: assert n == 1"}, "a test never calls the solution"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused(changed: Mapping[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        loaded([{**ROW, **changed}])


@pytest.mark.parametrize(
    "test", ["from solution import f\nassert f", "import solution\nassert solution.f() == 1"]
)
def test_a_test_may_import_the_solution(test: str) -> None:
    assert loaded([{"prompt": "p", "tests": test}])[0].tests == (test,)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    written(tmp_path / "tasks.jsonl", [ROW])
    with pytest.raises(SettingError, match=r'there is no file .*taks\.jsonl; the nearest is "tasks\.jsonl"'):
        load_tasks(DatasetSettings(dataset_name=str(tmp_path / "taks.jsonl")))
    for name, text, said in [
        ("a.jsonl", "{", "cannot be read"),
        ("a.json", "{}", "not a list of objects"),
        ("a.csv", "x", "none of .jsonl, .json, .parquet"),
        ("b.jsonl", "", "has no rows"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(SettingError, match=said):
            load_tasks(DatasetSettings(dataset_name=str(tmp_path / name)))


def test_a_parquet_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tasks.parquet"
    written(path, [ROW, ROW])
    data = bytearray(path.read_bytes())
    data[4:-200] = bytes(len(data) - 204)
    path.write_bytes(data)
    with pytest.raises(SettingError, match=r"tasks\.parquet cannot be read"):
        load_tasks(DatasetSettings(dataset_name=str(path)))


def test_a_test_that_imports_what_no_box_has_is_refused_before_the_run() -> None:
    with pytest.raises(
        SettingError, match=r"imports no_such_module, which the Python of a box does not have"
    ):
        loaded([{**ROW, "tests": "import math, no_such_module.part\nassert f(1) == 2"}])
    with pytest.raises(SettingError, match="imports no_such_module"):
        loaded([{**ROW, "setup": "from no_such_module import x"}], setup_field="setup")
    assert loaded([{**ROW, "tests": "import math, os.path\nassert f(1) == 2"}])


def test_columns_are_checked_before_all_rows_are_read() -> None:
    def endless(settings: DatasetSettings) -> Iterator[Mapping[str, Any]]:
        while True:
            yield {"question": "p", "tests": "x"}

    with pytest.raises(SettingError, match='no column "prompt"'):
        load_tasks(DatasetSettings(dataset_name="some/set"), hub=endless)


def test_what_lies_where_a_box_can_read_is_seen(tmp_path: Path) -> None:
    assert seen_in(tmp_path / "tasks.jsonl") is None
    assert seen_in(Path("/usr/share/tasks.jsonl")) == "/usr"
    (tmp_path / "link").symlink_to("/usr/share")
    assert seen_in(tmp_path / "link" / "tasks.jsonl") == "/usr"
    assert seen_in(Path(afterwit_atropos.__file__)) is None


@pytest.mark.atropos
def test_folders_are_read_as_the_library_of_the_hub_writes_them(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra atropos")
    held = datasets.Dataset.from_list([ROW, ROW])
    held.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict(train=held).save_to_disk(str(tmp_path / "splits"))
    (tmp_path / "files").mkdir()
    written(tmp_path / "files" / "train.jsonl", [ROW, ROW])
    for name in ("saved", "splits", "files"):
        found = load_tasks(DatasetSettings(dataset_name=str(tmp_path / name)))
        assert [task.tests for task in found] == [tuple(ROW["tests"])] * 2, name
    with pytest.raises(SettingError, match=r'no split "trian"; the nearest is "train"; it has train'):
        load_tasks(DatasetSettings(dataset_name=str(tmp_path / "splits"), dataset_split="trian"))
    with pytest.raises(SettingError, match=r'cannot be loaded: Unknown split "trian"'):
        load_tasks(DatasetSettings(dataset_name=str(tmp_path / "files"), dataset_split="trian"))
    with pytest.raises(SettingError, match=r'no column "question"'):
        load_tasks(DatasetSettings(dataset_name=str(tmp_path / "files"), prompt_field="question"))
    (tmp_path / "none").mkdir()
    with pytest.raises(SettingError, match="cannot be loaded"):
        load_tasks(DatasetSettings(dataset_name=str(tmp_path / "none")))


@pytest.mark.skipif(find_spec("datasets") is not None, reason="the library of the hub is installed")
def test_the_hub_needs_its_library_and_says_so() -> None:
    with pytest.raises(SettingError, match=r'"nobody/nothing" is not a file.*afterwit-atropos\[library\]'):
        load_tasks(DatasetSettings(dataset_name="nobody/nothing"))


@isolated
async def test_a_loaded_task_is_examined(tmp_path: Path) -> None:
    [task] = load_tasks(DatasetSettings(dataset_name=written(tmp_path / "tasks.jsonl", [ROW])))
    found = await examine(task, "def add(a, b): return a + b", here(), BoxLimits(seconds=60))
    assert found.correctness == 1.0
