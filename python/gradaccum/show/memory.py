"""Bytes over the stages of a window."""
from __future__ import annotations

from typing import Sequence

from .._checks import whole
from .._language import N_, _
from .._stages import TITLES
from ..accumulator import Accumulator
from ..memory import KINDS, format_bytes, needed, parse_bytes
from ..network import Network
from .picture import Picture
from .style import KIND_COLOURS, SOFT, VERMILLION

SHORT = {"gradient_buffer": N_("gradient buffer"), "activations": N_("activations")}
UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))


def memory_timeline(net_or_acc: Network | Accumulator, accumulation_steps: int | Sequence[int] | None = None, *,
                    effective_batch_size: int | None = None, limit: int | str | None = None) -> Picture:
    """Bytes that are needed after each stage of a window, by kind, from the ledger; the limit as a line.

    Args:
        net_or_acc: a network, with all that its optimizer and window have announced.
        accumulation_steps: K, or several, such as ``(1, 2, 4, 8)``: the same window cut differently, side by side. By default the
            Accumulator's, or 4.
        effective_batch_size: samples of the window; by default the planned micro-batch times the largest K.
        limit: bytes or a text such as "8 MiB"; by default the plan's.

    Raises:
        ValueError: K is no whole number from 1 to the samples of the window, or micro-batches of one size, the last may be short, are never K.
    """
    if not isinstance(net_or_acc, (Network, Accumulator)):
        raise TypeError(f"net_or_acc: got {type(net_or_acc).__name__}, expected a network from ga.plan(...) or its Accumulator")
    acc = net_or_acc if isinstance(net_or_acc, Accumulator) else net_or_acc._window()
    net = net_or_acc.net if isinstance(net_or_acc, Accumulator) else net_or_acc
    if accumulation_steps is None:
        accumulation_steps = acc and acc.accumulation_steps or 4
    several = not hasattr(accumulation_steps, "__index__")
    counts = [whole("accumulation_steps", k) for k in (accumulation_steps if several else [accumulation_steps])]
    if not counts:
        raise ValueError("accumulation_steps: it is empty; give K, or several such as (1, 2, 4, 8)")
    total = whole("effective_batch_size", net.micro_batch * max(counts) if effective_batch_size is None else effective_batch_size)
    if max(counts) > total:
        raise ValueError(f"accumulation_steps={max(counts)}: a window of {total} samples has at most that many micro-batches")
    for k in counts:
        if (pieces := -(-total // -(-total // k))) != k:
            raise ValueError(f"accumulation_steps={k}: {total} samples in micro-batches of {-(-total // k)} are {pieces}; take {pieces}, "
                             "or another effective_batch_size")
    limit = net.memory.limit if limit is None else parse_bytes(limit, "limit")
    staged, clip = bool(acc and acc.staged), bool(acc and acc.max_grad_norm is not None)
    windows = {k: _window(net, total, k, staged, clip) for k in counts}
    peaks = {k: max(sum(kinds.values()) for *_where, kinds in rows) for k, rows in windows.items()}
    whole_batch = max(peaks[1] if 1 in peaks else sum(net.memory.by_kind(total).values()), 1)
    return Picture(_message(total, peaks, whole_batch), _text(windows, limit), lambda figure: _draw(figure, windows, limit, total))


def _window(net, total: int, k: int, staged: bool, clip: bool) -> list[tuple]:
    """(stage, micro-batch or None, {kind: bytes}) of each stage."""
    piece = -(-total // k)
    sizes = [min(piece, total - first) for first in range(0, total, piece)]
    ledger = {n: net.memory.by_kind(n) for n in set(sizes)}
    rows = [(stage, i, needed(ledger[n], stage, i == 1, staged))
            for i, n in enumerate(sizes, start=1) for stage in ("forward", "loss", "backward", "accumulate")]
    ends = ("normalize", "clip", "update", "clear") if clip else ("normalize", "update", "clear")
    return rows + [(stage, None, needed(ledger[sizes[0]], stage, False, staged)) for stage in ends]


def _message(total: int, peaks: dict[int, int], whole_batch: int) -> str:
    first, last = min(peaks), max(peaks)
    if len(peaks) == 1:
        return _("{k} micro-batches of {m} need {bytes} at the peak; {total} samples at once would need {all}").format(
            k=first, m=-(-total // first), bytes=format_bytes(peaks[first]), total=total, all=format_bytes(whole_batch))
    return _("The peak goes from {high} at K = {first} to {low} at K = {last}: {times:.1f} times less for the same {total} samples").format(
        high=format_bytes(peaks[first]), first=first, low=format_bytes(peaks[last]), last=last, times=peaks[first] / peaks[last], total=total)


def _text(windows: dict[int, list], limit: int | None) -> str:
    """A line a stage; equal micro-batches that follow each other in one, "forward 2-8"."""
    lines = []
    for k, rows in windows.items():
        lines.append(f"K = {k}" + ("" if limit is None else ", " + _("limit {bytes}").format(bytes=format_bytes(limit))))
        runs: list[list] = []                                # [first, last micro-batch, its stages]
        for i in dict.fromkeys(i for _stage, i, _kinds in rows):
            stages = [(stage, kinds) for stage, step, kinds in rows if step == i]
            if runs and i and runs[-1][2] == stages:
                runs[-1][1] = i
            else:
                runs.append([i, i, stages])
        for first, last, stages in runs:
            where = "" if first is None else f" {first}" if first == last else f" {first}-{last}"
            for stage, kinds in stages:
                parts = ", ".join(f"{_(SHORT.get(kind, KINDS[kind]))} {format_bytes(n)}" for kind, n in kinds.items())
                lines.append(f"  {stage + where:<16} {format_bytes(sum(kinds.values())):>11}  {parts}")
    return "\n".join(lines)


def _draw(figure, windows: dict[int, list], limit: int | None, total: int) -> None:
    import numpy as np

    highest = max([sum(kinds.values()) for rows in windows.values() for *_where, kinds in rows] + [limit or 0])
    unit, size = next((unit, size) for unit, size in UNITS if highest >= size or size == 1)
    figure.set_size_inches(max(8.0, 1.5 + 2.9 * len(windows)), 4.6)
    axes = np.atleast_1d(figure.subplots(1, len(windows), sharey=True))
    present = [kind for kind in KINDS if any(kind in kinds for rows in windows.values() for *_where, kinds in rows)]
    moving = [kind for kind in present if any(kind not in kinds for rows in windows.values() for *_where, kinds in rows)]
    order = [kind for kind in present if kind not in moving] + moving            # what always stays lies below
    for ax, (k, rows) in zip(axes, windows.items()):
        edges = np.arange(len(rows) + 1)
        below = np.zeros(len(rows))
        for kind in order:
            values = np.array([kinds.get(kind, 0) for *_where, kinds in rows]) / size
            top = below + values
            ax.fill_between(edges, np.append(below, below[-1]), np.append(top, top[-1]), step="post", color=KIND_COLOURS[kind], linewidth=0,
                            label=_(SHORT.get(kind, KINDS[kind])))
            below = top
        ax.stairs(below, edges, color="black", linewidth=0.9, baseline=None)
        if limit is not None:
            ax.axhline(limit / size, color=VERMILLION, linestyle="--", linewidth=1.6)
            if ax is axes[-1]:
                ax.annotate(_("limit {bytes}").format(bytes=format_bytes(limit)), (0.98, limit / size), xycoords=("axes fraction", "data"), xytext=(0, 3),
                            textcoords="offset points", color=VERMILLION, fontsize=9, ha="right")
        micro = sum(1 for _stage, i, _kinds in rows if i) // 4
        for i in range(1, micro):
            ax.axvline(4 * i, color="white", linewidth=1.0)
        ax.axvline(4 * micro, color=SOFT, linewidth=0.8, linestyle=":")
        if len(windows) == 1 and micro <= 4:
            ax.set_xticks(edges[:-1] + 0.5, [_(TITLES[stage]) + (f" {i}" if i else "") for stage, i, _kinds in rows], rotation=45, ha="right", fontsize=9)
        else:
            step = -(-micro // 8)
            ax.set_xticks([4 * i + 2 for i in range(0, micro, step)] + [(4 * micro + len(rows)) / 2],
                          [str(i + 1) for i in range(0, micro, step)] + [_("end")], fontsize=9)
            ax.set_xlabel(_("micro-batch"))
        if len(windows) > 1:
            ax.set_title(f"K = {k}, {k} × {-(-total // k)}", fontsize=10, loc="center", fontweight="normal")
        ax.set_xlim(0, len(rows))
        ax.tick_params(axis="x", length=0)
    axes[0].set(ylabel=unit, ylim=(0, 1.12 * highest / size))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center", title=_("needed after each stage"), alignment="left", title_fontsize=9)
