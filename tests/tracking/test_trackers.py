"""The files that each library really wrote, read back with its own reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from afterwit.tracking.trackers import OPENERS, TRACKERS, Run, Tracker, Trackers, TrackingSettings, run_id
from tests.tracking.told import Remembering, commit

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
    """Two steps, each by a tracker of its own."""
    run = Run(project="house", id="run0", folder=folder)
    for step in STEPS:
        folder.mkdir(parents=True, exist_ok=True)
        tracker = OPENERS[name](run)
        tracker.log(step, STEPS[step], AT + step)
        tracker.close()


@pytest.mark.slow
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
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    until = time.monotonic() + 20
    while any(path.stat().st_size < 500 for path in files) and time.monotonic() < until:
        time.sleep(0.05)  # wandb's own process writes the end of a run shortly after `finish`
    rows, ids, kinds = [], set(), set()
    for path in files:
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
    """LevelDB's log after a header of 7 bytes: checksum, length, type, bytes; in blocks of 32 KiB."""
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


def test_every_tracker_has_a_library_and_an_adapter() -> None:
    assert OPENERS.keys() == TRACKERS.keys()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = SqliteStore.open(tmp_path / "store.db", fingerprint=None)
    yield opened
    opened.close()


def trackers(folder: Path, **boards: Remembering) -> Trackers:
    def opener(board: Remembering) -> Callable[[Run], Tracker]:
        return lambda run: board.opened(run)

    names = ("wandb", "mlflow")[: len(boards)]
    return Trackers(
        TrackingSettings(trackers=names),
        folder,
        {name: opener(board) for name, board in zip(names, boards.values(), strict=True)},
    )


def test_each_version_is_given_once_and_the_base_not_at_all(store: Store, tmp_path: Path) -> None:
    board = Remembering()
    given = trackers(tmp_path, board=board)
    commit(store, 0)
    given.committed(store)
    for number in (1, 2):
        commit(store, number)
        given.committed(store)
    given.close()
    assert [(step, values["learner/loss"], at) for step, values, at in board.told] == [
        (1, 1.0, 1040.0),
        (2, 0.5, 2040.0),
    ]
    assert (board.runs, board.closed) == ([run_id(store)], 1)


def test_a_tracker_that_fails_holds_up_no_other_and_gets_the_next_version(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken, fine = Remembering(fails=1), Remembering()
    given = trackers(tmp_path, broken=broken, fine=fine)
    commit(store, 0)
    for number in (1, 2):
        commit(store, number)
        given.committed(store)
    given.close()
    assert [step for step, _, _ in broken.told] == [2]
    assert [step for step, _, _ in fine.told] == [1, 2]
    assert (broken.runs, broken.closed) == ([run_id(store)] * 2, 2)
    assert "tracker wandb did not take version 1: ConnectionError: nobody listens" in caplog.text
