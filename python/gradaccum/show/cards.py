"""Cards: what an object is and holds, as HTML for notebooks. No script; colours and font of the page it stands in; readable without any style."""
from __future__ import annotations

import html
import math
from dataclasses import dataclass

import numpy as np

from .. import _core
from .._language import N_, _, get_language, ngettext
from .._stages import MEANINGS, NEXT, TITLES, following
from ..memory import KINDS, format_bytes
from ..replay.recording import _norm
from ..replay.texts import whole_number
from ._png import data_uri, picture
from .style import KIND_COLOURS

CSS = """
.ga-card{color:inherit;font:13px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;border:1px solid;
border-color:color-mix(in srgb,currentColor 28%,transparent);border-radius:9px;padding:.75em 1em;margin:.4em 0;max-width:54em;overflow-wrap:anywhere}
.ga-card .ga-head{display:flex;flex-wrap:wrap;align-items:baseline;gap:.1em .7em;margin:0 0 .35em}
.ga-card .ga-name{font-size:1.2em;font-weight:650;font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
.ga-card .ga-kind{opacity:.85}
.ga-card .ga-tag{border:1px solid;border-color:color-mix(in srgb,currentColor 45%,transparent);border-radius:1em;padding:0 .65em;font-size:.88em}
.ga-card .ga-lead{margin:.15em 0 .5em}
.ga-card .ga-scroll{overflow-x:auto}
.ga-card table{border-collapse:collapse;border:0;margin:.35em 0;font-size:1em;color:inherit;width:auto}
.ga-card tr{background:none!important;border:0}
.ga-card th,.ga-card td{text-align:left;vertical-align:middle;padding:.14em 1.1em .14em 0;border:0;white-space:normal;max-width:none;color:inherit}
.ga-card th{font-weight:400;opacity:.85;white-space:nowrap}
.ga-card .ga-scroll td{overflow-wrap:normal}
.ga-card thead th{border-bottom:1px solid;border-color:color-mix(in srgb,currentColor 28%,transparent)}
.ga-card .ga-number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.ga-card .ga-mono{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.95em}
.ga-card img{image-rendering:pixelated;border:1px solid;border-color:color-mix(in srgb,currentColor 28%,transparent);border-radius:2px;display:block}
.ga-card details{margin:.45em 0 0}
.ga-card summary{cursor:pointer;opacity:.95}
.ga-card .ga-dot{display:inline-block;width:.8em;height:.8em;border-radius:3px;margin-right:.55em;vertical-align:-.05em;border:1px solid;
border-color:color-mix(in srgb,currentColor 45%,transparent)}
.ga-card .ga-bar{display:inline-block;width:13em;height:.85em;vertical-align:middle;border-radius:3px;background:color-mix(in srgb,currentColor 9%,transparent)}
.ga-card .ga-bar span{display:block;height:100%;border-radius:3px;min-width:1px}
.ga-card .ga-steps{letter-spacing:.12em;font-size:1.1em}
.ga-card{container-type:inline-size}
@container (max-width:36em){
.ga-card .ga-bar{width:4em}
.ga-card .ga-wide,.ga-card .ga-wide tbody,.ga-card .ga-wide tr{display:block;width:100%}
.ga-card .ga-wide thead{display:none}
.ga-card .ga-wide tr{padding:.4em 0;border-top:1px solid;border-color:color-mix(in srgb,currentColor 28%,transparent)}
.ga-card .ga-wide td{display:flex;justify-content:space-between;align-items:center;gap:1em;padding:.1em 0;text-align:right;overflow-wrap:anywhere}
.ga-card .ga-wide td::before{content:attr(data-name);opacity:.85;flex:none}
.ga-card .ga-wide td[data-name=""]{justify-content:flex-start;gap:0;font-weight:650}
.ga-card .ga-wide td[data-name=""]::before,.ga-card .ga-wide td:empty{display:none}
}
"""
WIDE = 5                                                     # columns of a table whose rows become lists in a narrow card
STEPS_SHOWN = 40                                             # micro-batches drawn as squares
ROWS_SHOWN = 60                                              # rows of a table before it is cut

VIEWS = {"activations": "output", "parameters": "net.params"}     # what an event wrote -> the view that shows it
AXES = {                                                     # kind of layer -> names of the axes of its parameters, by their number
    "linear": {2: (N_("out"), N_("in")), 1: (N_("out"),)},
    "conv2d": {4: (N_("out"), N_("in"), N_("height"), N_("width")), 1: (N_("out"),)},
    "conv_transpose2d": {4: (N_("in"), N_("out"), N_("height"), N_("width")), 1: (N_("out"),)},
    "embedding": {2: (N_("token"), N_("feature"))},
    "position": {2: (N_("place"), N_("feature"))},
    "multihead_attention": {2: (N_("out"), N_("in")), 1: (N_("out"),)},
    "lstm": {2: (N_("gate × hidden"), N_("in")), 1: (N_("gate × hidden"),)},
    "gru": {2: (N_("gate × hidden"), N_("in")), 1: (N_("gate × hidden"),)},
    "layer_norm": {1: (N_("feature"),)},
    "rms_norm": {1: (N_("feature"),)},
    **{kind: {1: (N_("channel"),)} for kind in ("batch_norm", "ghost_batch_norm", "group_norm", "instance_norm2d")},
}


# ---- facts ----

@dataclass
class Statistics:
    """min, mean, max of the finite numbers of an array, norm, share of exact zeros, and how many numbers are NaN or infinite."""

    min: float
    mean: float
    max: float
    norm: float
    zeros: float
    broken: int

    @classmethod
    def of(cls, a: np.ndarray) -> "Statistics":
        if not a.size:
            return cls(math.nan, math.nan, math.nan, 0.0, 0.0, 0)
        finite = np.isfinite(a)
        broken = a.size - int(finite.sum())
        kept = a[finite] if broken else a
        low, mean, high = (float(kept.min()), float(kept.mean(dtype=np.float64)), float(kept.max())) if kept.size else (math.nan,) * 3
        return cls(low, mean, high, math.nan if broken else _norm(a), 1 - np.count_nonzero(a) / a.size, broken)

    def text(self) -> str:
        broken = f", {self.broken} NaN or infinite" if self.broken else ""
        return f"min {_n(self.min)}, mean {_n(self.mean)}, max {_n(self.max)}, norm {_n(self.norm)}, {100 * self.zeros:.1f} % zeros{broken}"


def _n(v) -> str:
    """Four digits, with a real minus sign."""
    return "–" if v is None else f"{v:.4g}".replace("-", "−")


def _whole(n: int) -> str:
    return whole_number(n, get_language())


def axis_names(p) -> tuple[str, ...]:
    """Names of the axes of a parameter of a network; empty where its layer is not known."""
    net = p._net()
    for node in net.nodes if net else ():
        if p.name in node.parameters:
            names = AXES.get(node.kind, {}).get(len(p.shape), ())
            if node.kind == "conv2d" and len(p.shape) == 4:
                channels = net._value_info[net._node_info[node.index][2][0]][0][0]
                return names if channels == p.shape[1] else (names[0], N_("in of a group"), *names[2:])
            return names
    return ()


def _shape(shape: tuple, names: tuple[str, ...], translate=lambda name: name) -> str:
    """"out 128, in 64", or without names "128 × 64"."""
    if len(names) == len(shape) and shape:
        return ", ".join(f"{translate(name)} {n}" for name, n in zip(names, shape))
    return " × ".join(map(str, shape)) or translate(N_("one number"))


def is_live(a: np.ndarray) -> bool:
    """Whether the array is a view of a network's own memory, which later stages write over."""
    while isinstance(a, np.ndarray):
        a = a.base
    return isinstance(a, _core.Block)


def written_by(net, what: str) -> str:
    """The stage or call that wrote the buffer last: "parameters", "gradient" (``net.grads``) or "buffer" (``acc.buffer``)."""
    if what == "parameters":
        return net._filled_by
    window, stage = net._window(), net.stage
    if window is None:
        return "backward" if stage == "backward" or net.grads.any() else "clear"
    if what == "buffer" and window.staged:
        inside = window.micro_step > 0 and stage != "clear"
        return "accumulate" if inside else "clear"
    if stage in ("normalize", "clip", "update"):
        clipped = window._core.get_state()["clipped"]
        return "clip" if clipped and stage != "normalize" else "normalize"
    if stage == "backward" or window.micro_step > 0:
        return "backward"
    return "clear"


# ---- HTML ----

def _e(text) -> str:
    return html.escape(str(text))


def _card(name: str, kind: str, *parts: str, tags=(), lead: str = "") -> str:
    head = f'<strong class="ga-name">{_e(name or kind)}</strong> '
    if name not in ("", kind):
        head += f'<span class="ga-kind">{_e(kind)}</span> '
    marks = " ".join(f'<span class="ga-tag">{_e(tag)}</span>' for tag in tags if tag)
    lead = f'<div class="ga-lead">{_e(lead)}</div>' if lead else ""
    return (f'<div class="ga-card" lang="{get_language()}"><style>{CSS}</style><div class="ga-head">{head}{marks}</div>{lead}{"".join(parts)}</div>')


def _facts(rows: dict[str, str]) -> str:
    """Names and values, one row each; what is None is left out."""
    lines = "".join(f'<tr><th scope="row">{_e(name)}</th><td>{value}</td></tr>' for name, value in rows.items() if value is not None)
    return f"<table><tbody>{lines}</tbody></table>"


def _table(head: list[str], rows: list[list[str]], numbers: tuple[int, ...] = ()) -> str:
    """``rows`` hold HTML; ``numbers`` are the columns that stand to the right."""
    wide = len(head) >= WIDE
    cell = lambda tag, i, value, more="": f"<{tag}{more}{' class=ga-number' if i in numbers else ''}>{value}</{tag}>"  # noqa: E731
    names = [f' data-name="{_e(name)}"' if wide else "" for name in head]
    more = len(rows) - ROWS_SHOWN
    shown = rows if more <= 0 else rows[:ROWS_SHOWN // 2] + [["…"] + [""] * (len(head) - 1)] + rows[-ROWS_SHOWN // 2:]
    body = "".join(f"<tr>{''.join(cell('td', i, value, names[i]) for i, value in enumerate(row))}</tr>" for row in shown)
    heads = "".join(cell("th", i, _e(name), ' scope="col"') for i, name in enumerate(head))
    return f'<div class="ga-scroll"><table{" class=ga-wide" if wide else ""}><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _details(title: str, body: str, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{_e(title)}</summary>{body}</details>"


def _mono(text) -> str:
    return f'<span class="ga-mono">{_e(text)}</span>' if text != "" else ""


def _dot(kind: str) -> str:
    return f'<span class="ga-dot" style="background:{KIND_COLOURS.get(kind, "transparent")}"></span>'


def _image(a: np.ndarray, name: str) -> str:
    """The array as a small picture; empty arrays have none."""
    if not a.size:
        return "–"
    data, height, width = picture(a)
    high, wide = (14, 120) if height == 1 else (max(height, height * 96 // max(height, width)), max(width, width * 96 // max(height, width)))
    alt = _("Picture of {name}: blue is negative, white zero, orange positive").format(name=name)
    return f'<img src="{data_uri(data)}" width="{wide}" height="{high}" alt="{_e(alt)}">'


def _statistics(arrays: list[tuple[str, str, np.ndarray, str]]) -> str:
    """A table of (label, kind of memory, array, written by); the last column stands only where something is in it."""
    rows, broken = [], []
    for label, kind, a, writer in arrays:
        s = Statistics.of(a)
        dot = _dot(kind) if kind else ""
        numbers = [*map(_n, (s.min, s.mean, s.max, s.norm)), f"{100 * s.zeros:.1f} %"]
        rows.append([f"{dot}{_e(label)}", _image(a, label), *numbers, *([_mono(writer)] if writer else [])])
        if s.broken:
            broken.append(ngettext("{name}: {n} number is NaN or infinite", "{name}: {n} numbers are NaN or infinite", s.broken).format(name=label, n=s.broken))
    head = ["", _("picture"), _("min"), _("mean"), _("max"), _("norm"), _("zeros"), _("last written by")]
    return _table(head[:len(rows[0])], rows, (2, 3, 4, 5, 6)) + "".join(f"<div><strong>{_e(text)}</strong></div>" for text in broken)


def _next(stage: str, window: bool = True) -> str:
    return _mono(", ".join(following(stage, window)))


def _stage(stage: str) -> str:
    title = _(TITLES[stage])
    return _mono(stage) + ("" if title.lower() == stage else f" ({_e(title)})")


def _size(a: np.ndarray) -> str:
    return _e(ngettext("{n} number, {bytes}", "{n} numbers, {bytes}", a.size).format(n=_whole(a.size), bytes=format_bytes(a.nbytes)))


def _live(a: np.ndarray) -> str:
    return _("live view") if is_live(a) else _("snapshot")


# ---- arrays and parameters ----

class ArrayCard:
    """What ``card`` returns: HTML in a notebook, two lines as text."""

    def __init__(self, array: np.ndarray, name: str, kind: str, axes: tuple[str, ...]):
        self.array, self.name, self.kind, self.axes = array, name, kind, axes

    def _repr_html_(self) -> str:
        a = self.array
        facts = _facts({_("shape"): _mono(_shape(a.shape, self.axes, _)), _("type"): _mono(a.dtype),
                        _("size"): _size(a)})
        return _card(self.name, _(self.kind), facts, _statistics([(self.name, "", a, "")]), tags=[_live(a)],
                     lead=_("It shows the memory itself: later stages change it.") if is_live(a) else "")

    def __repr__(self):
        a = self.array
        return (f"{self.name} ({_shape(a.shape, self.axes)}): {self.kind}, {a.dtype}, {format_bytes(a.nbytes)}, {'live view' if is_live(a) else 'snapshot'}\n"
                f"  {Statistics.of(a).text()}")


def card(array, name: str = "array", *, kind: str = N_("array"), axes: tuple[str, ...] = ()) -> ArrayCard:
    """A card of any array of real numbers: shape, type, bytes, statistics, a small picture, and whether it is a live view.

    Args:
        array: such as ``net.node("0").output``, ``acc.buffer``, ``event.views["output"]``, or an array of your own.
        name, kind: for the head of the card.
        axes: names of the axes, one for each: ``("sample", "feature")``.

    Raises:
        TypeError: no real numbers. ValueError: ``axes`` has another length than the shape.
    """
    a = np.asarray(array)
    if a.dtype.kind not in "fiub":
        raise TypeError(f"array: got dtype {a.dtype}, expected real numbers")
    if axes and len(axes) != a.ndim:
        raise ValueError(f"axes={axes!r}: expected one name for each of the {a.ndim} axes of shape {a.shape}")
    return ArrayCard(a, str(name), str(kind), tuple(axes))


def parameter(p) -> str:
    """Card of a NetworkParameter."""
    net = p._net()
    arrays, stage = [(_("data"), "parameters", p.data, written_by(net, "parameters") if net else "?")], net.stage if net else None
    if p.grad is not None:
        window = net._window() if net else None
        staged = window is not None and window.staged
        grad = _("gradient (micro-batch)") if staged else _("gradient")
        arrays.append((grad, "micro_batch_gradient" if staged else "gradient_buffer", p.grad, written_by(net, "gradient") if net else "?"))
        if staged:
            arrays.append((_("buffer (window)"), "gradient_buffer", p.of(window.buffer), written_by(net, "buffer")))
    facts = _facts({
        _("shape"): _mono(f"({_shape(p.shape, axis_names(p), _)})"),
        _("type"): _mono(p.data.dtype),
        _("size"): _size(p.data),
        _("written to by hand"): _e(_("a writable view was handed out")) if p.name in p._written else None,
        _("stage now"): stage and _stage(stage),
        _("allowed next"): stage and _next(stage, net._window() is not None),
    })
    return _card(p.name, _("parameter"), facts, _statistics(arrays), tags=[_live(p.data), _("frozen") if p.frozen else ""])


def parameter_text(p) -> str:
    """Two lines with the facts of a NetworkParameter."""
    net = p._net()
    names = axis_names(p)
    shape = f"shape={p.shape}{', frozen' if p.frozen else ''}"
    axes = f": {_shape(p.shape, names)}" if names else ":"
    state = "live view"
    if net:
        state = f"last written by {written_by(net, 'parameters')}, live view; next: {', '.join(following(net.stage, net._window() is not None))}"
    grad = "" if p.grad is None else f"; gradient norm {_n(Statistics.of(p.grad).norm)}"
    return (f"NetworkParameter({p.name!r}, {shape}){axes}{',' if names else ''} {p.data.dtype}, {format_bytes(p.data.nbytes)}, {state}\n"
            f"  {Statistics.of(p.data).text()}{grad}")


# ---- network and memory ----

def network(net) -> str:
    """Card of a Network."""
    memory = net.memory
    limit = "" if memory.limit is None else " " + _("of {limit}").format(limit=format_bytes(memory.limit))
    facts = _facts({
        _("parameters"): f"{_whole(net.params.size)}, {format_bytes(net.params.nbytes)}",
        _("type"): _mono(net.dtype),
        _("inputs"): ", ".join(_mono(f"{name} {net._value_info[v][0]}") for name, v in net._inputs.items()),
        _("micro-batch"): _e(ngettext("up to {n} sample", "up to {n} samples", net.micro_batch).format(n=_whole(net.micro_batch))),
        _("memory"): format_bytes(memory.bytes()) + _e(limit),
        _("stage now"): _stage(net.stage),
        _("allowed next"): _next(net.stage, net._window() is not None),
    })
    nodes = [[_mono(n.name), _e(n.kind), _mono(", ".join(n.inputs)), _mono("" if n.shape is None else " × ".join(map(str, n.shape))),
              _mono(", ".join(n.parameters))] for n in net.nodes]
    parameters = [[_mono(p.name) + (f" ({_e(_('frozen'))})" if p.frozen else ""), _mono(_shape(p.shape, axis_names(p), _)), _whole(p.data.size),
                   format_bytes(p.data.nbytes)] for p in net._parameters.values()]
    return _card(type(net._module).__name__, _("network"), facts,
                 _details(_("Nodes: {n}").format(n=len(nodes)), _table([_("node"), _("kind"), _("reads"), _("output"), _("parameters")], nodes)),
                 _details(_("Parameters: {n}").format(n=len(parameters)),
                          _table([_("parameter"), _("shape"), _("numbers"), _("bytes")], parameters, (2, 3))),
                 _details(_("Memory: {bytes}").format(bytes=format_bytes(memory.bytes())), _bars(memory.by_kind())),
                 tags=[_("training") if net.training else _("evaluation")], lead=_(MEANINGS[net.stage]) if net._window() else "")


def _bars(kinds: dict[str, int]) -> str:
    """Bytes by kind as bars in the colours of the kinds."""
    total, largest = sum(kinds.values()) or 1, max(kinds.values(), default=1) or 1
    rows = []
    for kind, n in kinds.items():
        bar = f'<span class="ga-bar"><span style="width:{100 * n / largest:.1f}%;background:{KIND_COLOURS[kind]}"></span></span>'
        rows.append([f"{_dot(kind)}{_e(_(KINDS[kind]))}", format_bytes(n), f"{100 * n / total:.1f} %", bar])
    return _table([_("kind"), _("bytes"), _("share"), ""], rows, (1, 2))


def memory(report) -> str:
    """Card of a MemoryReport."""
    total = report.bytes()
    facts = {_("micro-batch"): _e(ngettext("up to {n} sample", "up to {n} samples", report.micro_batch).format(n=_whole(report.micro_batch))),
             _("in all"): f"<strong>{format_bytes(total)}</strong>"}
    if report.limit is not None:
        facts[_("limit")] = f"{format_bytes(report.limit)}, {_e(_('used: {share} %').format(share=f'{100 * total / report.limit:.1f}'))}"
        largest = report.max_micro_batch(report.limit)
        facts[_("largest micro-batch")] = _e(ngettext("{n} sample would fit", "{n} samples would fit", largest).format(n=_whole(largest)))
    if saved := report.reuse_saved():
        facts[_("saved by reuse")] = format_bytes(saved)
    sizes = [m for m in (report.micro_batch // 4, report.micro_batch // 2, report.micro_batch, 2 * report.micro_batch) if m]
    others = _table([_("micro-batch"), _("bytes")], [[_whole(m), format_bytes(report.bytes(m))] for m in dict.fromkeys(sizes)], (0, 1))
    return _card("MemoryReport", _("memory"), _facts(facts), _bars(report.by_kind()), _details(_("Other micro-batches"), others))


# ---- the window ----

def _steps(done: int, planned: int | None) -> str:
    """"■■□□ 2 of 4"."""
    if planned is None:
        return _e(ngettext("{n} micro-batch", "{n} micro-batches", done).format(n=done))
    squares = f'<span class="ga-steps" aria-hidden="true">{"■" * min(done, planned)}{"□" * (planned - done)}</span> ' if planned <= STEPS_SHOWN else ""
    return squares + _e(_("{done} of {planned} micro-batches").format(done=done, planned=planned))


def accumulator(acc) -> str:
    """Card of an Accumulator."""
    net = acc.net
    stage = net.stage
    micro_step, loss_sum, weight_sum, samples = acc._core.sums()
    facts = _facts({
        _("window"): _steps(micro_step, acc.accumulation_steps),
        _("samples in it"): _whole(samples),
        _("loss so far"): _n(loss_sum / weight_sum) if weight_sum > 0 else None,
        _("divisor so far"): f"{_n(weight_sum)} ({_e(_('sum of the weights'))})",
        _("stage now"): _stage(stage),
        _("allowed next"): _next(stage),
    })
    so_far = _facts({_("updates"): _whole(acc.updates), _("micro-batches"): _whole(acc.micro_steps), _("samples"): _whole(acc.samples)})
    settings = _facts({
        "optimizer": _mono(acc.optimizer) if acc.optimizer else _e(_("none")), "reduction": _mono(acc.reduction), "staged": _mono(acc.staged),
        "accumulator": _mono(acc.accumulator), "max_grad_norm": _mono(acc.max_grad_norm), "tail": _mono(acc.tail),
        "on_non_finite": _mono(acc.on_non_finite),
    })
    parts = [facts, _details(_("So far"), so_far, True), _details(_("Settings"), settings)]
    if acc.last_update is not None:
        parts.append(_details(_("The last update"), _update_facts(acc.last_update)))
    buffers = [("net.grads", "micro_batch_gradient" if acc.staged else "gradient_buffer", net.grads, written_by(net, "gradient"))]
    if acc.staged:
        buffers.append(("acc.buffer", "gradient_buffer", acc.buffer, written_by(net, "buffer")))
    parts.append(_details(_("Buffers (live views)"), _statistics(buffers)))
    return _card("Accumulator", _("window of gradient accumulation"), *parts, lead=_(MEANINGS[stage]))


def _update_facts(u) -> str:
    norm = None if u.grad_norm is None else _n(u.grad_norm) + (f", {_e(_('clipped to {norm}').format(norm=_n(u.grad_norm_clipped)))}" if u.clipped else "")
    return _facts({
        _("reason"): f"<strong>{_e(_(u.reason))}</strong>" if u.skipped else None,
        _("not finite first in"): _mono(u.non_finite) if u.non_finite else None,
        _("loss"): f"{_n(u.loss)} ({_e(_('sum of losses / sum of weights'))})",
        _("weight"): f"{u.weight:g}",
        _("samples"): _e(ngettext("{samples} in {n} micro-batch", "{samples} in {n} micro-batches", u.micro_steps).format(
            samples=_whole(u.samples), n=_whole(u.micro_steps))),
        _("tokens"): _whole(u.tokens) if u.tokens != u.samples else None,
        _("rejected"): _whole(u.rejected) if u.rejected else None,
        _("norm of the gradient"): norm,
        _("learning rate"): None if u.lr is None else f"{u.lr:g}",
        _("time"): f"{1e3 * u.seconds:.3g} ms, {_whole(round(u.samples_per_second))} {_e(_('samples per second'))}" if u.seconds else None,
    })


def update(u) -> str:
    """Card of an Update."""
    title = _("update {n}").format(n=u.update) if not u.skipped else _("no update")
    losses = [[str(i), _n(loss)] for i, loss in enumerate(u.micro_losses, start=1)]
    return _card("Update", title, _update_facts(u), _details(_("Loss of each micro-batch"), _table([_("micro-batch"), _("mean loss")], losses, (0, 1))),
                 tags=[_("skipped") if u.skipped else "", _("clipped") if u.clipped else ""])


def event(e) -> str:
    """Card of an Event."""
    now = e.is_now
    numbers = {name: _n(value) for name, value in e.values.items()}
    if "weight" in numbers and e.stage in ("accumulate", "normalize"):
        numbers = {(_("divisor so far") if name == "weight" else name): value for name, value in numbers.items()}
    rows, written = [], {VIEWS.get(name, name) for name in e.changed}
    for name, a in e.views.items():
        s = Statistics.of(a)
        rows.append(["●" if name in written else "○", _mono(name), _mono(" × ".join(map(str, a.shape))), _mono(a.dtype), format_bytes(a.nbytes),
                     *map(_n, (s.min, s.max, s.norm)), _image(a, name)])
    head = [_("wrote"), _("view"), _("shape"), _("type"), _("bytes"), _("min"), _("max"), _("norm"), _("picture")]
    where = _("end of the window") if e.micro_step is None else _("micro-batch {k}").format(k=e.micro_step)
    facts = _facts({_("it wrote"): ", ".join(map(_mono, e.changed)) or _e(_("nothing")), **{name: value for name, value in numbers.items()},
                    _("allowed next"): _mono(", ".join(NEXT[e.stage]))})
    stale = ("" if now else _("The window has moved on: these numbers are those of now, not of this stage. Copy them in time with event.snapshot().")
             if now is False else "")
    note = f"<div><strong>{_e(stale)}</strong></div>" if stale else ""
    return _card(_(TITLES[e.stage]), where, facts, note, _details(_("Live views (● written by this stage)"), _table(head, rows, (4, 5, 6, 7)), True),
                 tags=[_english(e.stage)], lead=_(MEANINGS[e.stage]))


def _english(stage: str) -> str:
    """The stage's English name as a tag, where the title is in another language."""
    return "" if _(TITLES[stage]).lower() == stage else stage


