"""Logs in text files, with the standard library: JSON lines and CSV."""
from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

from .record import _AXIS_KEY, Logger


def _position(row: dict, axis: str) -> tuple[int, bool]:
    """Order of the rows: by micro-steps, which every window moves, also a skipped one; the row of an epoch comes after its last window."""
    return int(row.get("micro_step") or row[axis]), row.get("weight") in (None, "")


class _File(Logger):
    """A text file of one line a record, written out at once. A run that goes on from its checkpoint goes on in its file: a last line cut off by a crash
    is removed, and so are, at the first ``write``, the records that lie after the checkpoint, since they come again. A run that begins anew is refused,
    and a file that is no log of this kind is left as it is."""

    def __init__(self, path, x: str = "samples"):
        super().__init__(x)
        self.path, self._rows = Path(path), []               # rows of the runs before: (position, value on the axis, where it ends in the file)
        try:
            self._file = open(self.path, "a+b")
        except OSError as error:
            raise type(error)(error.errno, f"log: cannot write {self.path}: {error.strerror}; its folder must exist and be writable, and it must not be a "
                                           "folder itself") from error
        self._on_close(self._file.close)
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        if self._rows:
            self._holds = f"{self.path} holds {len(self._rows)} records"

    def _open(self) -> None:
        """Reads what is there, and mends the last line."""
        self._file.seek(0)
        data, end, axis = self._file.read(), 0, _AXIS_KEY[self.x]
        *lines, rest = data.split(b"\n")
        try:
            for number, line in enumerate(lines, start=1):
                end += len(line) + 1
                row = self._parse(line.decode("utf-8"))
                if row is not None:
                    self._rows.append((_position(row, axis), int(row[axis]), end))
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"log: {self.path} is not a log of {type(self).__name__} with {axis}, see line {number}; it was left as it is, give a new "
                             "file") from error
        if rest and not lines and not rest.startswith(self._begin[:len(rest)]):
            raise ValueError(f"log: {self.path} is not a log of {type(self).__name__} with {axis}; it was left as it is, give a new file")
        if rest:
            self._file.truncate(end)

    def _parse(self, line: str) -> dict | None:
        """The record of a line, None for a head."""
        raise NotImplementedError

    def _line(self, record: dict) -> str:
        raise NotImplementedError

    def _write(self, record: dict, at: int) -> None:
        line = self._line(record)
        if self._rows:
            self._go_on(record, at)
        self._file.write(line.encode("utf-8"))
        self._file.flush()

    def _go_on(self, record: dict, at: int) -> None:
        """Removes the rows that come again, now that it is known where the run goes on."""
        kept = [row for row in self._rows if row[0] < _position(record, _AXIS_KEY[self.x])]
        if not kept:
            raise self._another_run()
        _, last, end = kept[-1]
        if at < last:
            raise ValueError(f"record: {_AXIS_KEY[self.x]}={at} comes after {last} in {self.path}: an axis does not run backwards; is this the log of "
                             "another run?")
        self._file.truncate(end)
        self._rows, self._holds = [], ""


class JSONLines(_File):
    """One JSON object a line. NaN and infinity, which JSON does not have, are null.

    Args:
        path: of the file; records are appended. x: see ``Logger``.
    """

    _begin = b'{"micro_step"'

    def _parse(self, line):
        return json.loads(line)

    def _line(self, record):
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
        return json.dumps(plain, ensure_ascii=False) + "\n"


class CSV(_File):
    """A table with a head. The first record gives the columns, with val_loss and val_accuracy added; NaN and infinity stand as nan and inf, what is
    missing stays empty, and a line break in a text becomes a space.

    Args:
        path: of the file; records are appended. x: see ``Logger``.

    Raises:
        ValueError: a record with a column that the table does not have.
    """

    _begin = b"micro_step,"
    _columns: list[str] | None = None

    def _parse(self, line):
        (cells,) = csv.reader([line])
        if self._columns is None:
            cells.index(_AXIS_KEY[self.x])                   # ValueError if it is not there
            self._columns = cells
            return None
        return dict(zip(self._columns, cells, strict=True))

    def _line(self, record):
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        columns = self._columns or list(dict.fromkeys([*record, "val_loss", "val_accuracy"]))
        unknown = [k for k in record if k not in columns]
        if unknown:
            raise ValueError(f"record: {', '.join(unknown)} is no column of {self.path}; the first record gives the columns")
        if self._columns is None:
            writer.writerow(columns)
            self._columns = columns
        cells = [record.get(k) for k in columns]
        writer.writerow(["" if v is None else " ".join(v.splitlines()) if isinstance(v, str) else v for v in cells])
        return out.getvalue()
