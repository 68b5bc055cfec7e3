"""TensorBoard event files."""
from __future__ import annotations

from .record import Logger, load_extra, numbers, writable_folder


class TensorBoard(Logger):
    """Scalars in a folder that ``tensorboard --logdir`` shows; the step is the chosen axis.

    Args:
        folder: made if it is not there. x: see ``Logger``.
    """

    def __init__(self, folder, x: str = "samples"):
        super().__init__(x)
        event_file = load_extra("tensorboard.summary.writer.event_file_writer", "TensorBoard")
        self._event = load_extra("tensorboard.compat.proto.event_pb2", "TensorBoard")
        self._summary = load_extra("tensorboard.compat.proto.summary_pb2", "TensorBoard")
        self._writer = event_file.EventFileWriter(str(writable_folder(folder)))

    def _write(self, record, at):
        values = [self._summary.Summary.Value(tag=k, simple_value=v) for k, v in numbers(record).items()]
        self._writer.add_event(self._event.Event(step=at, summary=self._summary.Summary(value=values)))

    def close(self) -> None:
        self._writer.close()
