"""Logs in text files, with the standard library: JSON lines and CSV."""
from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path

from .record import _AXIS_KEY, Logger


class _File(Logger):
    """A text file of one line a record, written out at once. A run that goes on appends: a last line cut off by a crash is removed, and records at or
    before the last one in the file are left out, so that work done twice is logged once."""

    def __init__(self, path, x: str = "samples"):
        super().__init__(x)
        self.path = Path(path)
        try:
            self._file = open(self.path, "a+b")
        except OSError as error:
            raise type(error)(error.errno, f"log: cannot write {self.path}: {error.strerror}; its folder must exist and be writable, and it must not be a "
                                           "folder itself") from error
        try:
            self._resume()
        except BaseException:
            self._file.close()
            raise
        self._seen = self._last

    def _resume(self) -> None:
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        if whole < size:
            self._file.truncate(whole)
        self._read(data[:whole].decode("utf-8"))

    def _read(self, text: str) -> None:
        """Finds the position of the last record in the file."""
        raise NotImplementedError

    def _line(self, record: dict) -> str:
        raise NotImplementedError

    def write(self, record: dict) -> None:
        if self._file.closed:
            raise ValueError(f"log: {self.path} is closed")
        at = record.get(_AXIS_KEY[self.x])
        if isinstance(at, int) and at <= self._seen:         # the file has it from before the run was resumed
            return
        super().write(record)

    def _write(self, record: dict, at: int) -> None:
        self._file.write(self._line(record).encode("utf-8"))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class JSONLines(_File):
    """One JSON object a line. NaN and infinity, which JSON does not have, are null.

    Args:
        path: of the file; records are appended. x: see ``Logger``.
    """

    def _read(self, text):
        lines = text.splitlines()
        if not lines:
            return
        try:
            self._last = int(json.loads(lines[-1])[_AXIS_KEY[self.x]])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"log: {self.path} is not a log of JSON lines with {_AXIS_KEY[self.x]}; give a new file") from error

    def _line(self, record):
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
        return json.dumps(plain, ensure_ascii=False) + "\n"


class CSV(_File):
    """A table with a head. The first record gives the columns; NaN and infinity stand as nan and inf, what is missing stays empty.

    Args:
        path: of the file; records are appended. x: see ``Logger``.

    Raises:
        ValueError: a record with a column that the table does not have.
    """

    _columns: list[str] | None = None

    def _read(self, text):
        rows = list(csv.reader(io.StringIO(text)))
        if not rows:
            return
        self._columns = rows[0]
        try:
            column = self._columns.index(_AXIS_KEY[self.x])
            self._last = int(rows[-1][column]) if len(rows) > 1 else -1
        except (IndexError, ValueError) as error:
            raise ValueError(f"log: {self.path} is not a table with a column {_AXIS_KEY[self.x]}; give a new file") from error

    def _line(self, record):
        head = ""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        if self._columns is None:
            self._columns = list(record)
            writer.writerow(self._columns)
            head = out.getvalue()
            out.seek(0)
            out.truncate()
        unknown = [k for k in record if k not in self._columns]
        if unknown:
            raise ValueError(f"record: {', '.join(unknown)} is no column of {self.path}; the first record gives the columns")
        writer.writerow(["" if record.get(k) is None else record[k] for k in self._columns])
        return head + out.getvalue()
