"""TensorBoard event files."""
from __future__ import annotations

import time

from .record import Logger, load_extra, numbers, writable_folder


class TensorBoard(Logger):
    """Scalars in a folder that ``tensorboard --logdir`` shows; the step is the chosen axis. A run that goes on in the same folder adds a file, and
    TensorBoard then leaves out what the older ones have from that step on.

    Args:
        folder: made if it is not there. x: see ``Logger``.
    """

    def __init__(self, folder, x: str = "samples"):
        super().__init__(x)
        event_file = load_extra("tensorboard.summary.writer.event_file_writer", "TensorBoard")
        self._event = load_extra("tensorboard.compat.proto.event_pb2", "TensorBoard")
        self._summary = load_extra("tensorboard.compat.proto.summary_pb2", "TensorBoard")
        folder = writable_folder(folder)
        if any(folder.glob("*tfevents*")):
            self._holds = f"{folder} has event files"
        self._writer = event_file.EventFileWriter(str(folder), flush_secs=1)
        self._on_close(self._writer.close)

    def _write(self, record, at):
        if self._holds:                                      # the mark of a restart; a record of an epoch comes after its last update, which stays
            self._holds, restart = "", self._event.SessionLog(status=self._event.SessionLog.START)
            self._writer.add_event(self._event.Event(wall_time=time.time(), step=at + ("weight" not in record), session_log=restart))
        values = [self._summary.Summary.Value(tag=k, simple_value=v) for k, v in numbers(record).items()]
        self._writer.add_event(self._event.Event(wall_time=time.time(), step=at, summary=self._summary.Summary(value=values)))
