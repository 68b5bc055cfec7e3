"""Weights & Biases, offline."""
from __future__ import annotations

from .record import _AXIS_KEY, Logger, load_extra, numbers, writable_folder


class WandB(Logger):
    """An offline run (``wandb sync`` sends it, if you want it to); the step is the chosen axis.

    Args:
        folder: made if it is not there. project, run: their names. x: see ``Logger``.
    """

    def __init__(self, folder, project: str = "gradaccum", run: str | None = None, x: str = "samples"):
        super().__init__(x)
        wandb = load_extra("wandb", "Weights & Biases")
        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
        self._run = wandb.init(project=project, name=run, dir=str(writable_folder(folder)), mode="offline", settings=settings, reinit="create_new")
        self._run.define_metric("*", step_metric=_AXIS_KEY[x])
        self.folder = self._run.dir
        self._on_close(self._run.finish)
        self._finalizer.atexit = False                       # wandb does that itself

    def _write(self, record, at):
        self._run.log(numbers(record), step=at)
