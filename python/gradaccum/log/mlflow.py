"""MLflow, in a local store."""
from __future__ import annotations

import time

from .record import Logger, load_extra, numbers, writable_folder


class MLflow(Logger):
    """A run with its metrics in a local SQLite store (``mlflow ui --backend-store-uri sqlite:///<folder>/mlflow.db``); the step is the chosen axis.

    Args:
        folder: made if it is not there; the store is ``mlflow.db`` in it. experiment, run: their names. x: see ``Logger``.
    """

    def __init__(self, folder, experiment: str = "gradaccum", run: str | None = None, x: str = "samples"):
        super().__init__(x)
        tracking = load_extra("mlflow.tracking", "MLflow")
        entities = load_extra("mlflow.entities", "MLflow")
        folder = writable_folder(folder).resolve()
        self._metric, self._client = entities.Metric, tracking.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
        found = self._client.get_experiment_by_name(experiment)
        where = found.experiment_id if found else self._client.create_experiment(experiment, artifact_location=(folder / "artifacts").as_uri())
        self.run_id = self._client.create_run(where, run_name=run).info.run_id
        self._on_close(self._client.set_terminated, self.run_id)

    def _write(self, record, at):
        now = int(time.time() * 1000)
        self._client.log_batch(self.run_id, metrics=[self._metric(k, v, now, at) for k, v in numbers(record).items()])
