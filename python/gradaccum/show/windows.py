"""A window that fills up, and what the split did to its gradient."""
from __future__ import annotations

import math

from .._language import _, ngettext
from .picture import Picture
from .style import BLUE, GREEN, GREY, KIND_COLOURS, SOFT, VERMILLION


def _get(item, name: str, default=None):
    """A field of a record or a key of a dict."""
    return item.get(name, default) if isinstance(item, dict) else getattr(item, name, default)


def _listed(name: str, items, needs: str) -> list:
    """``items`` as a list, if it is one of rows."""
    if isinstance(items, (str, bytes, dict)) or not hasattr(items, "__iter__"):
        raise TypeError(f"{name}: got {type(items).__name__}, expected {needs}")
    return list(items)


def number(v: float) -> str:
    """Three digits, with a real minus sign."""
    return f"{v:.3g}".replace("-", "−")


def window(recording) -> Picture:
    """The norm of the window's buffer after each micro-batch, and what dividing and clipping leave of it.

    Args:
        recording: what ``acc.record`` returns, the list of all events of ``acc.stages(x, y)``, or dicts with "stage", "micro_step" and "norm".

    Raises:
        ValueError: there is no stage "accumulate" with a norm in it.
    """
    norms = []                                               # (stage, micro-batch or None, norm)
    for event in _listed("recording", getattr(recording, "events", recording), "acc.record(x, y) or list(acc.stages(x, y))"):
        stage, values, recorded = _get(event, "stage"), _get(event, "values", {}), _get(event, "norms", {})
        names = {"accumulate": ("buffer", "buffer_norm"), "normalize": ("grads", "grad_norm"), "clip": ("grads", None)}.get(stage)
        norm = _get(event, "norm", recorded.get(names[0], values.get(names[1]))) if names else None
        if norm is not None:                                 # an event of stages() tells the norm before clipping only
            norms.append((stage, _get(event, "micro_step"), float(norm)))
    filled, after = [n for n in norms if n[0] == "accumulate"], {stage: norm for stage, _step, norm in norms if stage != "accumulate"}
    if not filled:
        raise ValueError("recording: expected the events of a window, with a stage \"accumulate\"; give acc.record(x, y) or list(acc.stages(x, y))")
    first, last = filled[0][2], filled[-1][2]
    title = ngettext("After {n} micro-batch the norm of the buffer is {last}", "The norm of the buffer goes from {first} to {last} over {n} micro-batches",
                     len(filled)).format(n=len(filled), first=number(first), last=number(last))
    if after.get("normalize"):
        title += "; " + _("dividing once makes it {norm}").format(norm=number(after["normalize"]))
    lines = [f"  {stage:<10} {step or '':>4}  {norm:.6g}" for stage, step, norm in norms]
    return Picture(title, "\n".join([f"  {'stage':<10} {'step':>4}  norm", *lines]), lambda figure: _draw_window(figure, filled, after))


def _draw_window(figure, filled, after) -> None:
    figure.set_size_inches(8, 4.2)
    axes = figure.subplots(1, 2, width_ratios=(4, 1.3)) if after else [figure.subplots()]
    steps = [step for _stage, step, _norm in filled]
    finite = lambda norm: norm if math.isfinite(norm) else 0.0  # noqa: E731    # what is not has no bar, and its name on it
    heights = [finite(norm) for *_where, norm in filled]
    few = len(steps) <= 32
    if few:
        axes[0].bar(steps, heights, color=KIND_COLOURS["gradient_buffer"], width=0.72)
        axes[0].set_xticks(steps if len(steps) <= 16 else steps[::2])
    else:
        axes[0].fill_between(steps, heights, color=KIND_COLOURS["gradient_buffer"], linewidth=0)
    for x, y, (*_where, norm) in zip(steps, heights, filled):
        if len(steps) > 10 and math.isfinite(norm):
            continue
        axes[0].annotate(number(norm), (x, y), ha="center", xytext=(0, 3), textcoords="offset points", fontsize=9, color=SOFT)
    axes[0].set(xlabel=_("micro-batches in the window"), ylabel=_("norm of the buffer (sum of gradients)"), ylim=(0, 1.1 * max(heights) or 1))
    if after:
        names = {"normalize": _("divided"), "clip": _("clipped")}
        axes[1].bar([names[stage] for stage in after], [finite(norm) for norm in after.values()], color=[BLUE, GREEN][:len(after)], width=0.55)
        for i, norm in enumerate(after.values()):
            axes[1].annotate(number(norm), (i, finite(norm)), ha="center", xytext=(0, 3), textcoords="offset points", fontsize=9, color=SOFT)
        axes[1].set(ylabel=_("norm of the mean gradient"), xlim=(-0.6, len(after) - 0.4), ylim=(0, 1.12 * max(map(finite, after.values())) or 1))


def against_full_batch(report) -> Picture:
    """How far the window gradient of each split is from that of the full batch, one dot a parameter.

    Args:
        report: what ``ga.check_equivalence`` returns, or its rows: dicts with "split", "parameter", "relative" and "equal".

    Raises:
        ValueError: no rows, or rows without these.
    """
    rows = _listed("report", getattr(report, "rows", report), "ga.check_equivalence(net, x, y) or its rows")
    if not rows:
        raise ValueError("report: it has no rows; give ga.check_equivalence(net, x, y)")
    for i, row in enumerate(rows):
        missing = [key for key in ("split", "parameter", "relative", "equal") if _get(row, key) is None]
        if missing:
            raise ValueError(f"report[{i}]: {', '.join(missing)} is missing; expected dicts with split, parameter, relative and equal")
    splits = list(dict.fromkeys(row["split"] for row in rows))
    worst = max(rows, key=lambda row: math.inf if math.isnan(row["relative"]) else row["relative"])
    equal = [split for split in splits if all(row["equal"] for row in rows if row["split"] == split)]
    if len(equal) == len(splits):
        title = ngettext("{n} split has exactly the bits of the full batch", "All {n} splits have exactly the bits of the full batch", len(splits)).format(
            n=len(splits))
    else:
        title = _("{equal} of {n} splits have the bits of the full batch; {parameter} in {split} is off by {share}").format(
            equal=len(equal), n=len(splits), parameter=worst["parameter"], split=worst["split"], share=_share(worst["relative"]))
    lines = [f"  {'split':<16} {'parameter':<24} {'relative':>10}  bits"]
    lines += [f"  {row['split']:<16} {row['parameter']:<24} {row['relative']:>10.3g}  {'equal' if row['equal'] else 'differ'}" for row in rows]
    return Picture(title, "\n".join(lines), lambda figure: _draw_differences(figure, rows, splits))


def _share(relative: float) -> str:
    return f"{100 * relative:.3g}\xa0%" if relative >= 1e-4 else f"{relative:.1e}"


def _draw_differences(figure, rows, splits) -> None:
    figure.set_size_inches(8, 1.9 + 0.36 * len(splits))
    zero, ax = figure.subplots(1, 2, sharey=True, width_ratios=(1, 4))
    for row in rows:
        y = splits.index(row["split"])
        side, x = (zero, 0) if row["relative"] == 0 else (ax, row["relative"])
        side.plot(x, y, "o", color=BLUE if row["equal"] else VERMILLION, markersize=7, alpha=0.75, markeredgewidth=0)
    zero.set(xlim=(-1, 1), xlabel=_("exactly 0"))
    zero.set_xticks([])
    zero.set_yticks(range(len(splits)), splits)
    zero.set_ylim(len(splits) - 0.5, -0.5)
    zero.grid(True, axis="y")
    ax.set_xscale("log")
    found = [row["relative"] for row in rows if row["relative"] > 0 and math.isfinite(row["relative"])]
    ax.set_xlim(min([1e-9, *(v / 3 for v in found)]), max([10.0, *(3 * v for v in found)]))
    ax.set_xlabel(_("difference from the full batch, as a share of its gradient's norm"))
    for share, label in ((1.2e-7, "float32"), (2.2e-16, "float64")):
        if ax.get_xlim()[0] < share:
            ax.axvline(share, color=GREY, linewidth=1, linestyle=":")
            ax.annotate(_("rounding, {dtype}").format(dtype=label), (share, 0), xycoords=("data", "axes fraction"), xytext=(4, 4), textcoords="offset points",
                        fontsize=9, color=SOFT)
