"""What each library really wrote, read back with its own reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from afterwit.tracking.trackers import TRACKERS, Run, missing_module, open_tracker

STEPS = {1: {"learner/loss": 0.5, "time/update": 40.0}, 2: {"learner/loss": 0.25, "time/update": 41.0}}
AT = 1_700_000_000.0


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent, and nothing of this machine is read."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_", "TRACKIO_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("HOME", str(tmp_path))


def tell(name: str, folder: Path) -> None:
    """Two steps by two processes' worth of trackers, the second step twice."""
    run = Run(project="house", id="run0", folder=folder)
    for steps in ((1,), (2, 2)):
        tracker = open_tracker(name, run)
        for step in steps:
            tracker.log(step, STEPS[step], AT + step)
        tracker.close()


def test_tensorboard_has_a_curve_for_each_name(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    tell("tensorboard", tmp_path)
    found: dict[tuple[str, int], tuple[float, float]] = {}
    for path in sorted((tmp_path / "tensorboard" / "run0").iterdir()):
        for record in records(path.read_bytes()):
            event = Event.FromString(record)
            for value in event.summary.value:
                found[value.tag, event.step] = (value.simple_value, event.wall_time)
    assert found == {
        (name, step): (value, AT + step) for step, values in STEPS.items() for name, value in values.items()
    }


def records(data: bytes) -> Iterator[bytes]:
    """TFRecord: length, its checksum, the bytes, their checksum."""
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        yield data[at + 12 : at + 12 + length]
        at += 16 + length


@pytest.mark.slow
def test_mlflow_keeps_one_run_over_restarts(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    tell("mlflow", tmp_path)
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("house")
    (run,) = client.search_runs([experiment.experiment_id])
    for name in STEPS[1]:
        history = client.get_metric_history(run.info.run_id, name)
        assert {(each.step, each.value, each.timestamp) for each in history} == {
            (step, STEPS[step][name], (AT + step) * 1000) for step in STEPS
        }


@pytest.mark.slow
def test_wandb_writes_offline_runs_of_one_id_with_nothing_but_numbers(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    tell("wandb", tmp_path)
    rows, ids, kinds = [], set(), set()
    for path in sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb")):
        for data in blocks(path.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            kinds.add(record.WhichOneof("record_type"))
            if record.HasField("run"):
                ids.add(record.run.run_id)
            if record.HasField("history"):
                items = {
                    ".".join(each.nested_key) or each.key: each.value_json for each in record.history.item
                }
                rows.append({name: json.loads(value) for name, value in items.items()})
    assert ids == {"run0"}
    assert not list(tmp_path.rglob("requirements.txt"))
    assert not kinds & {"output", "output_raw", "stats", "artifact"}
    for step, values in STEPS.items():
        (row, *_) = [row for row in rows if row["_step"] == step]
        assert {name: row[name] for name in values} == values
        assert row["_timestamp"] == AT + step


def blocks(data: bytes) -> Iterator[bytes]:
    """LevelDB's log behind a header of 7 bytes: checksum, length, type, bytes; in blocks of 32 KiB."""
    at, whole = 7, b""
    while at < len(data):
        if 2**15 - at % 2**15 < 7:  # too little for a header: filled up
            at += 2**15 - at % 2**15
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield whole
            whole = b""


@pytest.mark.slow
def test_trackio_keeps_one_run_on_this_machine(tmp_path: Path) -> None:
    """In a process of its own: trackio reads where it writes when it is imported."""
    pytest.importorskip("trackio")
    code = (
        "import sys; from pathlib import Path; from tests.tracking.test_trackers import tell;"
        "tell('trackio', Path(sys.argv[1]));"
        "from trackio.sqlite_storage import SQLiteStorage; import json;"
        "found = [SQLiteStorage.get_runs('house'), SQLiteStorage.get_logs('house', 'run0')];"
        "print('FOUND' + json.dumps(found))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND")]
    runs, logs = json.loads(line.removeprefix("FOUND"))
    assert runs == ["run0"]
    found = {(row["step"], name): row[name] for row in logs for name in STEPS[1]}
    assert found == {(step, name): value for step, values in STEPS.items() for name, value in values.items()}


def test_a_tracker_says_which_module_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afterwit.tracking.trackers.find_spec", lambda name: None)
    assert {name: missing_module(name) for name in TRACKERS} == {
        "wandb": "wandb", "tensorboard": "tensorboardX", "trackio": "trackio", "mlflow": "mlflow"
    }  # fmt: skip
