"""Pictures of runs: time, noise, and losses against what they cost."""
from __future__ import annotations

import math
from collections import defaultdict
from typing import Mapping

import numpy as np

from .._checks import choice
from .._language import _, get_language
from ..replay.texts import whole_number
from .picture import Picture
from .style import BLUE, COLOURS, GREEN, SOFT, VERMILLION
from .windows import _get, _listed, number

MARKERS = "osD^vPX*"


def _rows(rows, needs: str) -> list:
    rows = [row for row in _listed("rows", getattr(rows, "rows", rows), f"dicts with {needs}") if not (isinstance(row, dict) and row.get("refused"))]
    if not rows:
        raise ValueError(f"rows: there is nothing to draw; expected dicts with {needs}")
    return rows


def _values(rows: list, *names: str) -> list[tuple]:
    """These fields of each row; all must be finite numbers."""
    values = [tuple(_get(row, name) for name in names) for row in rows]
    for i, row in enumerate(values):
        for name, value in zip(names, row):
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not math.isfinite(value):
                raise ValueError(f"rows[{i}]: {name}={value!r}: expected a finite number")
    return values


def _window_samples(record) -> int:
    """A log record counts samples since the start of the run, and those of its window under a name of their own."""
    return _get(record, "window_samples") or _get(record, "samples")


def _powers(ax, values) -> None:
    """A logarithmic axis whose ticks are the values themselves."""
    ax.set_xscale("log", base=2)
    ax.set_xticks(values, [f"{v:g}" for v in values])
    ax.minorticks_off()


def time_against_steps(rows) -> Picture:
    """Time of an update and of a sample against K, the micro-batches of a window.

    Args:
        rows: ``ga.compare(...)`` or its rows, dicts with "accumulation_steps", "seconds_per_update" and "seconds_per_sample", a line for each
            "effective_batch_size" that they have; or ``Update`` or log records, of which the medians for each number of micro-batches are taken.

    Raises:
        ValueError: no rows, or rows without these numbers.
    """
    rows = _rows(rows, "accumulation_steps, seconds_per_update and seconds_per_sample")
    if _get(rows[0], "seconds_per_update") is None:
        groups = defaultdict(list)
        for update, (seconds, _samples) in zip(rows, _values(rows, "seconds", "samples")):
            groups[_get(update, "micro_steps") or _get(update, "accumulation_steps")].append((seconds, seconds / _window_samples(update)))
        points = {(0, k): tuple(np.median(times, axis=0).tolist()) for k, times in groups.items()}
    else:
        numbers = _values(rows, "accumulation_steps", "seconds_per_update", "seconds_per_sample")
        points = {(_get(row, "effective_batch_size") or 0, k): times for row, (k, *times) in zip(rows, numbers)}
    points = dict(sorted(points.items()))
    lines_of = defaultdict(list)                             # effective batch -> [(K, times)]
    for (n, k), times in points.items():
        lines_of[n].append((k, times))
    several = len(lines_of) > 1
    best, worst = min(points, key=lambda at: points[at][1]), max(points, key=lambda at: points[at][1])
    samples = lambda n: f"{whole_number(n, get_language())} {_('samples')}"  # noqa: E731
    name = lambda at: f"{at[1]} ({samples(at[0])})" if several else at[1]  # noqa: E731
    title = _("A sample takes the least time at K = {best}: {time} µs").format(best=name(best), time=number(1e6 * points[best][1]))
    if best != worst:
        title += "; " + _("at K = {worst} it takes {times:.1f} times as long").format(worst=name(worst), times=points[worst][1] / points[best][1])
    batch = lambda text: f" {text:>8}" if several else ""  # noqa: E731
    lines = [f"  {'K':>5}{batch('batch')} {'ms/update':>11} {'us/sample':>11}",
             *(f"  {k:>5}{batch(n)} {1e3 * u:>11.4g} {1e6 * s:>11.4g}" for (n, k), (u, s) in points.items())]

    def draw(figure):
        figure.set_size_inches(8.5, 3.8)
        labels = (_("milliseconds per update"), _("microseconds per sample"))
        for ax, i, scale, label, colour in zip(figure.subplots(1, 2), (0, 1), (1e3, 1e6), labels, (BLUE, GREEN)):
            heights = [scale * times[i] for times in points.values()]
            for j, (n, line) in enumerate(lines_of.items()):
                ax.plot([k for k, _times in line], [scale * times[i] for _k, times in line], f"{MARKERS[j % len(MARKERS)]}-", markersize=7,
                        color=COLOURS[j % len(COLOURS)] if several else colour, label=samples(n))
            for (_n, k), height in zip(points, heights) if not several else ():
                ax.annotate(number(height), (k, height), ha="center", xytext=(0, 7), textcoords="offset points", fontsize=9, color=SOFT,
                            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8})
            ax.set(xlabel=_("K, micro-batches per update"), ylabel=label, ylim=(0, 1.18 * max(heights)))
            _powers(ax, sorted({k for _n, k in points}))
            ax.margins(x=0.1)
        if several:
            figure.axes[0].legend()

    return Picture(title, "\n".join(lines), draw)


def noise_against_batch(rows) -> Picture:
    """The noise of the gradient, or of the loss, against the effective batch.

    Args:
        rows: dicts with "effective_batch_size" and "noise" (standard deviation of the gradient over its norm), or ``ga.compare(...)``,
            whose "loss_spread" is drawn; those of one batch are averaged. Or ``acc.noise_scale``: then the noise that it predicts,
            sqrt(scale / batch) (McCandlish et al. 2018, arXiv:1812.06162, equation 2.9 as a ratio).

    Raises:
        ValueError: no rows, rows without these numbers, or a noise scale without a number; its reason is in the text.
    """
    scale, spread = None, False
    if hasattr(rows, "grad_sq") and hasattr(rows, "scale"):
        scale = rows.scale
        if scale is None or not scale > 0:
            raise ValueError(f"noise_scale: there is no number yet: {rows.reason}")
        middle = round(math.log2(scale))
        points = {2.0**i: math.sqrt(scale / 2.0**i) for i in range(max(0, middle - 5), max(0, middle - 5) + 11)}
        label = _("noise of the gradient over its norm")
    else:
        rows = _rows(rows, "effective_batch_size and noise")
        spread = _get(rows[0], "noise") is None
        measured = defaultdict(list)
        for n, value in _values(rows, "effective_batch_size", "loss_spread" if spread else "noise"):
            measured[n].append(value)
        points = {n: float(np.mean(values)) for n, values in sorted(measured.items())}
        label = _("spread of the loss between updates") if spread else _("noise of the gradient over its norm")
    first, last = min(points), max(points)
    if scale is not None:
        title = _("The noise scale is {scale} samples: there the noise is as large as the gradient").format(scale=number(scale))
    elif first == last:
        title = _("A batch of {n} has noise {noise}").format(n=first, noise=number(points[first]))
    else:
        title = _("A batch {more} times as large has {less} times less spread in its loss; independent samples would give {root}") if spread else _(
            "A batch {more} times as large has {less} times less noise; independent samples would give {root}")
        title = title.format(
            more=number(last / first), less=number(points[first] / points[last]) if points[last] else "∞", root=number(math.sqrt(last / first)))
    lines = [f"  {'batch':>8} {'noise':>11}", *(f"  {b:>8g} {v:>11.4g}" for b, v in points.items())]

    def draw(figure):
        figure.set_size_inches(7.5, 4.2)
        ax = figure.subplots()
        ax.plot(list(points), list(points.values()), "o-" if scale is None else "-", color=BLUE, markersize=7, label=_("predicted") if scale else _("measured"))
        if scale is None and len(points) > 1 and points[first] > 0:
            ax.plot(list(points), [points[first] * math.sqrt(first / b) for b in points], "--", color=SOFT, linewidth=1.2, label=_("1 / √batch"))
        if scale is not None:
            ax.axvline(scale, color=VERMILLION, linestyle="--")
            ax.annotate(_("noise scale {scale}").format(scale=number(scale)), (scale, 1), xycoords=("data", "axes fraction"), xytext=(5, -12),
                        textcoords="offset points", color=VERMILLION, fontsize=9)
            ax.axhline(1, color=SOFT, linewidth=0.8, linestyle=":")
        _powers(ax, list(points))
        if min(points.values()) > 0:
            from matplotlib.ticker import LogLocator

            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(lambda value, _place: f"{value:g}")
            ax.yaxis.set_minor_formatter(lambda value, _place: "")
        ax.set(xlabel=_("samples per update"), ylabel=label)
        ax.legend()

    return Picture(title, "\n".join(lines), draw)


def losses(runs, x: str = "samples") -> Picture:
    """The loss of each window, against the samples seen or against the updates.

    Args:
        runs: ``{name: records}``, each a list of ``Update`` records, the history of ``ga.fit``, or dicts with "loss" and "samples" of the window; or
            ``ga.compare(...)``.
        x: "samples" or "updates".

    Raises:
        TypeError: a run of micro-batches (``Step``), which have no place on either axis.
        ValueError: no run, or a run without updates.
    """
    choice("x", x, ("samples", "updates"))
    curves = {}
    if not isinstance(runs, Mapping):
        runs = {f"{row['micro_batch']} × {row['accumulation_steps']}": row for row in _rows(runs, "losses")}
    for name, run in runs.items():
        if isinstance(run, dict):                            # of a comparison: one array a seed, here their mean
            values = np.mean(run["losses"], axis=0)
            seen = np.arange(1, len(values) + 1) * run["effective_batch_size"]
        else:
            run = _listed(f"runs[{name!r}]", run, "a list of Update records, the history of ga.fit, or dicts with loss and samples")
            for i, record in enumerate(run):
                if _get(record, "is_boundary") is not None:
                    raise TypeError(f"runs[{name!r}][{i}] is the record of a micro-batch; give those of updates, "
                                    "[step.update for step in steps if step.update]")
                if _get(record, "loss") is None and not _get(record, "skipped"):
                    raise ValueError(f"runs[{name!r}][{i}]: it has no loss; expected Update records, or dicts with loss and samples")
                if _window_samples(record) is None:
                    raise ValueError(f"runs[{name!r}][{i}]: it has no samples; expected Update records, or dicts with loss and samples")
            made = np.array([not _get(record, "skipped", False) for record in run], dtype=bool)
            values = np.array([_get(record, "loss") for record, kept in zip(run, made) if kept])
            seen = np.cumsum([_window_samples(record) for record in run])[made]      # samples of a skipped window were seen too
        if not len(values):
            raise ValueError(f"runs[{name!r}]: it has no updates")
        curves[str(name)] = (seen if x == "samples" else np.arange(1, len(values) + 1), values)
    if not curves:
        raise ValueError("runs: there is none; expected {name: list of Update records}")
    same = len(curves) > 1 and len({values.tobytes() for _seen, values in curves.values()}) == 1
    best = min(curves, key=lambda name: math.inf if math.isnan(curves[name][1][-1]) else curves[name][1][-1])
    if same:
        title = _("{n} runs, one curve: every loss is the same, bit for bit").format(n=len(curves))
    else:
        unit = _("samples") if x == "samples" else _("updates")
        seen, values = curves[best]
        title = _("{name} ends lowest, at {loss} after {n} {unit}").format(
            name=best, loss=number(values[-1]), n=whole_number(seen[-1], get_language()), unit=unit)
    lines = [f"  {'run':<20} {'updates':>8} {x:>12} {'first loss':>12} {'last loss':>12}"]
    lines += [f"  {name:<20} {len(values):>8} {seen[-1]:>12,} {values[0]:>12.6g} {values[-1]:>12.6g}" for name, (seen, values) in curves.items()]

    def draw(figure):
        figure.set_size_inches(7.5, 4.4)
        ax = figure.subplots()
        for i, (name, (seen, values)) in enumerate(curves.items()):
            width = 9.0 - 7.6 * i / (len(curves) - 1) if same else 1.8           # the first ones wide, so that equal curves show below each other
            ax.plot(seen, values, color=COLOURS[i % len(COLOURS)], linewidth=width, label=name,
                    marker=MARKERS[i % len(MARKERS)] if not same else None, markevery=max(1, len(values) // 8), markersize=5)
        ax.set(xlabel=_("samples seen") if x == "samples" else _("updates"), ylabel=_("loss of the window"))
        ax.xaxis.set_major_formatter(lambda value, _place: whole_number(round(value), get_language()))
        if len(curves) > 1:
            ax.legend()

    return Picture(title, "\n".join(lines), draw)
