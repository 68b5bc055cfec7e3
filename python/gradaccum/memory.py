"""Bytes: of a plan, by kind and by node, before anything is allocated."""
from __future__ import annotations

import os
import re

import numpy as np

from ._language import N_, _
from .errors import BudgetError

KINDS = {
    "parameters": N_("parameters"),
    "gradient_buffer": N_("gradient buffer (one window)"),
    "micro_batch_gradient": N_("gradient of the micro-batch"),
    "optimizer_state": N_("optimizer state"),
    "activations": N_("activations (grow with the micro-batch)"),
    "activation_gradients": N_("activation gradients"),
    "layer_state": N_("layer state"),
    "packed_weights": N_("packed weights"),
    "workspace": N_("workspace"),
    "ema": N_("moving average"),
}
_NEEDED = {                                                  # stages after which the numbers of a kind are still needed
    "activations": ("forward", "loss", "backward"),
    "activation_gradients": ("backward",),
    "workspace": ("forward", "backward"),
    "packed_weights": ("forward", "loss", "backward", "accumulate"),
    "micro_batch_gradient": ("backward", "accumulate", "normalize", "clip", "update"),
}
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(value: int | str | None, name: str = "memory_limit") -> int | None:
    """8388608, "8 MiB", "8GB" or None to bytes."""
    if value is None:
        return None
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", value)
        unit = _UNITS.get(match[2].upper()) if match else None
        try:
            value = int(float(match[1]) * unit) if unit else None
        except ValueError:
            value = None
        if value is None:
            raise ValueError(f'{name}: expected a number of bytes or a text such as "8 MiB" (units {", ".join(k for k in _UNITS if k)})')
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}={value!r}: expected at least 1 byte")
    return int(value)


def format_bytes(n: float) -> str:
    """12345678 to "11.77 MiB"."""
    for unit in ("B", "KiB", "MiB"):
        if abs(n) < 1024 or unit == "MiB" and abs(n) < 1024 * 10:
            return f"{n:.0f} B" if unit == "B" else f"{n:.2f} {unit}"
        n /= 1024
    return f"{n:.2f} GiB"


def machine_memory() -> int:
    """Bytes that this process may have: the machine's memory, or its container's limit if that is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                total = min(total, int(file.read()))
        except (OSError, ValueError):
            continue
    return total


def splits_of(effective: int, largest: int) -> list[tuple[int, int]]:
    """(micro_batch, accumulation_steps) with equal pieces that keep ``effective`` samples a window, largest first."""
    return [(m, effective // m) for m in range(min(largest, effective), 0, -1) if effective % m == 0]


def needed(kinds: dict[str, int], stage: str, first: bool, staged: bool) -> dict[str, int]:
    """Of the bytes by kind, those whose numbers are still needed after a stage of a micro-batch, the ``first`` of its window or not."""
    empty = stage == "clear" or first and stage in ("forward", "loss", "backward")[:2 + staged]
    return {kind: n for kind, n in kinds.items() if (not empty if kind == "gradient_buffer" else stage in _NEEDED.get(kind, (stage,)))}


class MemoryReport:
    """Bytes of a network, as a function of the micro-batch size; exactly what is allocated.

    ``extra`` holds what optimizers and windows add later: ``{kind: bytes}``, none of it depends on the micro-batch.
    """

    def __init__(self, core, micro_batch: int, limit: int | None, node_rows):
        self._core = core
        self.micro_batch = micro_batch
        self.limit = limit
        self._node_rows = node_rows
        self._staged = False
        self._planned: dict | None = None
        self._extra: dict[str, dict[str, int]] = {}          # owner -> kind -> bytes

    def by_kind(self, micro_batch: int | None = None) -> dict[str, int]:
        """Bytes by kind; the sum is ``bytes(micro_batch)``."""
        if micro_batch is not None and micro_batch != self.micro_batch:
            return self._kinds(self._core.bytes(int(micro_batch)))
        if self._planned is None:                            # never changes; a log asks for it at every update
            self._planned = self._core.bytes(self.micro_batch)
        return self._kinds(self._planned)

    def _lean(self, micro_batch: int) -> int:
        """Bytes without what is for speed alone."""
        return sum(self._kinds(self._core.bytes(micro_batch, -1, 1)).values())

    def _kinds(self, raw: dict) -> dict[str, int]:
        kinds = {
            "parameters": raw["parameters"],
            "gradient_buffer": 0 if self._staged else raw["gradients"],
            "micro_batch_gradient": raw["gradients"] if self._staged else 0,
            "activations": raw["activations"],
            "activation_gradients": raw["activation_gradients"],
            "layer_state": raw["state"],
            "packed_weights": raw["packed"],
            "workspace": raw["workspace"],
        }
        for extra in self._extra.values():
            for kind, n in extra.items():
                kinds[kind] = kinds.get(kind, 0) + n
        return {kind: kinds[kind] for kind in KINDS if kinds.get(kind)}

    def bytes(self, micro_batch: int | None = None) -> int:
        """All bytes for micro-batches of that many samples (default: as planned)."""
        return sum(self.by_kind(micro_batch).values())

    def by_node(self, micro_batch: int | None = None) -> list[dict]:
        """One row a node: name, kind, parameters, output, output_grad and saved bytes, before any memory is shared.

        ``reuse_saved`` tells how much sharing saves in total.
        """
        return self._node_rows(self.micro_batch if micro_batch is None else int(micro_batch))

    def reuse_saved(self, micro_batch: int | None = None) -> int:
        """Bytes that activations and their gradients save by using memory again; 0 with keep="all"."""
        return self._core.bytes(self.micro_batch if micro_batch is None else int(micro_batch))["reuse_saved"]

    def max_micro_batch(self, limit: int | str) -> int:
        """Largest micro-batch whose plan fits ``limit`` bytes; 0 if not even one sample does.

        A plan near its limit takes no memory for speed alone (``ga.plan``), so this counts without it.
        """
        limit = parse_bytes(limit, "limit")
        fits = lambda m: self._lean(m) <= limit  # noqa: E731
        if not fits(1):
            return 0
        low, high = 1, 2
        while high < 2**31 and self._safe(fits, high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._safe(fits, middle) else (low, middle)
        return low

    @staticmethod
    def _safe(fits, m):
        try:
            return fits(m)
        except ValueError:                                   # more bytes than can be counted
            return False

    def recomputed(self) -> int:
        """Nodes that run a second time in backward (``recompute=``, ``nn.Checkpoint``)."""
        return self._core.bytes(self.micro_batch)["recomputed"]

    def table(self, micro_batches=None, limit: int | str | None = None) -> "MemoryTable":
        """Bytes for each micro-batch size, without recompute, as planned, and with recompute="sqrt"; what fits ``limit`` is marked.

        Args:
            micro_batches: sizes; by default powers of two up to twice the planned one.
            limit: bytes; the plan's own by default.
        """
        limit = self.limit if limit is None else parse_bytes(limit, "limit")
        sizes = list(micro_batches) if micro_batches is not None else [2**i for i in range(20) if 2**i <= 2 * self.micro_batch]
        fixed = sum(n for extra in self._extra.values() for n in extra.values())
        kinds = ("parameters", "gradients", "activations", "activation_gradients", "state", "packed", "workspace")
        rows = []
        for m in sizes:
            row = {"micro_batch": m}
            for name, code in (("kept", 2), ("planned", -1), ("sqrt", 1)):
                raw = self._core.bytes(int(m), code)
                row[name] = sum(raw[k] for k in kinds) + fixed
            rows.append(row)
        return MemoryTable(rows, limit)

    def check(self, micro_batch: int, limit: int | None, adding: dict[str, int] | None = None, what: str = "") -> None:
        """Raises BudgetError if the plan (and ``adding``) needs more than ``limit``."""
        if limit is None:
            return
        by_kind = self.by_kind(micro_batch)
        for kind, n in (adding or {}).items():
            by_kind[kind] = by_kind.get(kind, 0) + n
        asked = sum(by_kind.values())
        if asked <= limit:
            return
        largest = self.max_micro_batch(max(limit - sum((adding or {}).values()), 1))
        splits = splits_of(micro_batch, largest)
        lines = [f"{what or f'a micro-batch of {micro_batch}'} needs {format_bytes(asked)}, the limit is {format_bytes(limit)}.",
                 "  " + "   ".join(f"{_(KINDS.get(k, k))} {format_bytes(n)}" for k, n in sorted(by_kind.items(), key=lambda i: -i[1]))]
        if largest:
            advice = _(" or ").join(f"{m} x {k}" for m, k in splits[:2])
            lines.append(_("  Largest micro-batch that fits: {largest}. To keep an effective batch of {batch}, try {advice} "
                           "(micro_batch x accumulation_steps).").format(largest=largest, batch=micro_batch, advice=advice))
        else:
            smallest = self._lean(1) + sum((adding or {}).values())
            lines.append(_("  Not even one sample fits: the smallest plan needs {smallest}. Raise memory_limit or use a smaller model.").format(
                smallest=format_bytes(smallest)))
        raise BudgetError("\n".join(lines), asked, limit, by_kind, largest, splits)

    def add(self, owner: str, kinds: dict[str, int], what: str) -> None:
        """An optimizer or window announces its bytes before it allocates them."""
        before = self._extra.pop(owner, {})
        try:
            self.check(self.micro_batch, self.limit, kinds, what)
        except BudgetError:
            if before:
                self._extra[owner] = before
            raise
        self._extra[owner] = kinds

    def gone(self, owner: str, kinds: dict[str, int]) -> None:
        """An optimizer or window was freed. (A window that replaced it has announced itself under another name.)"""
        self._extra.pop(owner, None)
        if kinds.get("gradient_buffer") and not any(extra.get("gradient_buffer") for extra in self._extra.values()):
            self._staged = False

    def _head(self) -> str:
        limit = "" if self.limit is None else f" of {format_bytes(self.limit)}"
        return f"MemoryReport: {format_bytes(self.bytes())}{limit} for micro-batches of {self.micro_batch}"

    def __repr__(self):
        largest = sorted(self.by_kind().items(), key=lambda item: -item[1])
        return f"{self._head()}\n  {', '.join(f'{kind} {format_bytes(n)}' for kind, n in largest)}"

    def __str__(self):
        return "\n".join([self._head(), *(f"  {format_bytes(n):>12}  {_(KINDS[k])}" for k, n in self.by_kind().items())])

    def _repr_html_(self):
        from .show import cards
        return cards.memory(self)


class MemoryTable:
    """What ``MemoryReport.table`` returns: ``rows`` with micro_batch, kept, planned and sqrt bytes; prints as a table."""

    def __init__(self, rows: list[dict], limit: int | None):
        self.rows, self.limit = rows, limit

    def __repr__(self):
        mark = lambda n: f"{format_bytes(n):>12}{'' if self.limit is None else ' fits' if n <= self.limit else '  no '}"  # noqa: E731
        head = f"{'micro-batch':>11}  {'all kept':>12}{'':5}  {'as planned':>12}{'':5}  {'recompute sqrt':>14}"
        limit = "" if self.limit is None else f"  (limit {format_bytes(self.limit)})"
        return "\n".join([head + limit, *(f"{r['micro_batch']:>11}  {mark(r['kept'])}  {mark(r['planned'])}  {mark(r['sqrt'])}" for r in self.rows)])
