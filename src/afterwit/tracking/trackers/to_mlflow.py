"""MLflow: the server of its own MLFLOW_TRACKING_URI, else files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from afterwit.tracking.trackers import Run, Tracker

TAG = "afterwit.run"


class MlflowTracker:
    def __init__(self, client: Any, run: str) -> None:
        self._client, self._run = client, run

    def log(self, step: int, values: Mapping[str, float], at: float) -> None:
        from mlflow.entities import Metric

        points = [Metric(name, value, int(at * 1000), step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=points)

    def close(self) -> None:
        """The run stays open in MLflow: it goes on at the next start."""


def opened(run: Run) -> Tracker:
    """The run that carries this id as a tag, in the experiment of the project's name; made if missing."""
    from mlflow import MlflowClient

    where = os.environ.get("MLFLOW_TRACKING_URI")
    if where is None:
        where = (run.folder / "mlflow").absolute().as_uri()
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else MLflow wants a database
    client = MlflowClient(tracking_uri=where)
    experiment = client.get_experiment_by_name(run.project)
    number = client.create_experiment(run.project) if experiment is None else experiment.experiment_id
    found = client.search_runs([number], filter_string=f"tags.`{TAG}` = '{run.id}'", max_results=1)
    known = found[0] if found else client.create_run(number, run_name=run.id, tags={TAG: run.id})
    return MlflowTracker(client, known.info.run_id)
