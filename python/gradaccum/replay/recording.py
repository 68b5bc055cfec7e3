"""Runs a window stage by stage and keeps what is worth seeing of each."""
from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from .._checks import choice, sizes
from .._library import __version__
from .._undo import Undo
from ..errors import StageError
from ..memory import format_bytes, needed
from . import formulas, page
from .formulas import Element, number
from .pictures import Picture, images, pixel_count, signed
from .texts import EXPLANATIONS, LANGUAGES, STAGES, phrase

SIDE, IMAGE_SIDE = 64, 32                                    # most pixels along a side of a buffer's and of an input's picture
PARAMETERS, SAMPLES = 12, 32                                 # most parameters with pictures, most samples with pictures in a micro-batch
BUDGET = 144 * 1024                                          # bytes of pictures of buffers, and again of inputs


class Recording:
    """What ``acc.record`` returns.

    Attributes:
        events: one dict a stage, in order: "stage", "micro_step" (None at the boundary), "changed" (as ``Event``), "values" (its
            numbers), "norms" ({name: norm} of each parameter, ``name.grad``, in a staged window ``name.buffer``, and "grads",
            "buffer", "output"), "pictures" ({name: Picture}, the same names, inputs by theirs and ``name.change`` for what the update did),
            "bytes" ({kind: bytes} that hold numbers still needed), "formula" ([(with names, with numbers), ...]), "title" and
            "explanation" ({"en": text, "vi": text}), "predicted" and "targets" (classes of the pictured images, from forward to backward; None is ignored).
        update: the window's record.
        window: samples, micro_steps, micro_batch, reduction, staged, optimizer, followed (the element in the formulas).
        memory: reserved ({kind: bytes}), limit (bytes or None), full_batch (bytes of the same window as one micro-batch).
        parameters: rows of name, shape, frozen, pictured.
    """

    def __init__(self, events, update, window, memory, parameters):
        self.events, self.update = events, update
        self.window, self.memory, self.parameters = window, memory, parameters

    def __len__(self) -> int:
        return len(self.events)

    def table(self) -> str:
        """The recording as text: one line a stage."""
        rows = [f"{'stage':<11} {'micro-batch':<12} {'wrote':<38} {'buffer norm':>12} {'loss sum':>10} {'weight':>8} {'bytes':>11}"]
        for e in self.events:
            where = f"{e['micro_step']} of {self.window['micro_steps']}" if e["micro_step"] else "boundary"
            rows.append(f"{e['stage']:<11} {where:<12} {', '.join(e['changed']) or 'nothing':<38} {e['norms']['buffer']:>12.5g} "
                        f"{e['loss_sum']:>10.5g} {e['weight_sum']:>8.5g} {format_bytes(sum(e['bytes'].values())):>11}")
        return "\n".join(rows)

    def to_dict(self) -> dict:
        """Everything, ready for JSON: equal pictures once, in "pictures", to which the events refer by number; NaN and infinity as text."""
        pictures: dict[tuple, int] = {}
        rows = []

        def index(picture: Picture) -> int:
            key = (picture.kind, picture.shape, picture.scale, picture.pixels.shape, picture.pixels.tobytes())
            if key not in pictures:
                pictures[key] = len(rows)
                rows.append(picture.to_dict())
            return pictures[key]

        events = [{**e, "pictures": {name: index(p) for name, p in e["pictures"].items()}} for e in self.events]
        return _plain({"version": __version__, "window": self.window, "memory": self.memory, "parameters": self.parameters, "events": events,
                       "pictures": rows})

    def to_json(self) -> str:
        """``to_dict`` as text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def to_html(self, language: str = "both") -> str:
        """The page of ``save_html`` as text."""
        choice("language", language, ("both", *LANGUAGES))
        return page.render(self, LANGUAGES if language == "both" else (language,))

    def save_html(self, path, language: str = "both") -> Path:
        """One page that plays the window: no network, no other file, any browser.

        Args:
            path: of the file; its folder must exist.
            language: "en", "vi", or "both": a switch in the page, which begins in the language of the browser.
        """
        text, path = self.to_html(language), Path(path)
        path.write_text(text, encoding="utf-8")
        return path

    def __repr__(self):
        w = self.window
        return (f"Recording: {len(self)} stages, {w['samples']} samples in {w['micro_steps']} micro-batches of up to {w['micro_batch']}, "
                f"{'no update' if self.update.skipped else f'update {self.update.update}'}; print(recording.table()), "
                "recording.save_html(\"window.html\")")


def record(acc, x, y, weight=None, *, image_shape=None) -> Recording:
    """See ``Accumulator.record``."""
    acc._need_optimizer("record")
    if acc.micro_step:
        raise StageError(f"record: the window already holds {acc.micro_step} micro-batches; flush it or clear(discard=True)")
    recorder = _Recorder(acc, x, y, image_shape)
    undo, updates = Undo(acc), acc.updates
    try:
        for event in acc.stages(x, y, weight):
            recorder.take(event)
    except BaseException:
        if recorder.events and acc.updates == updates:
            undo()
        elif recorder.events:
            acc.clear(discard=True)
        raise
    return recorder.recording()


class _Recorder:
    """Takes the events of one window."""

    def __init__(self, acc, x, y, image_shape):
        self.acc, self.net = acc, acc.net
        self.events: list[dict] = []
        self.inputs = {name: np.asarray(a) for name, a in zip(self.net._inputs, self.net._as_inputs(x))}
        self.y = np.asarray(y)
        for name, a in (*self.inputs.items(), ("y", self.y)):
            if a.ndim == 0 or self.y.ndim == 0 or len(a) != len(self.y) or not len(a):
                raise ValueError(f"record: {name} has the shape {a.shape} and y {self.y.shape}: expected equal numbers of samples, at least 1")
        self.total, piece = len(self.y), acc.micro_batch
        self.steps = -(-self.total // piece)
        self.images = {name: _as_images(a, image_shape) for name, a in self.inputs.items()}
        if image_shape is not None and not any(self.images.values()):
            raise ValueError(f"image_shape={image_shape}: no input has samples of that many numbers; they have the shapes "
                             f"{', '.join(str(a.shape[1:]) for a in self.inputs.values())}")
        self.ranges = {name: _range(self.inputs[name]) for name, shape in self.images.items() if shape}
        parameters = self.net._parameters
        names = list(parameters)
        half = PARAMETERS // 2
        self.pictured = set(names if len(names) <= PARAMETERS else names[:half] + names[-half:])
        self.side = self._side([parameters[name].shape for name in names if name in self.pictured])
        self.row_side = max(self.side, 16)                   # of outputs and inputs, which each micro-batch has once
        self.image_side, self.shown = self._image_side()
        self.followed = None                                 # (parameter, index)
        self.norms: dict[str, float] = {}
        self.pictures: dict[str, Picture] = {}
        self.before: Element | None = None
        self.sums = (0.0, 0.0)
        self.kinds: dict[int, dict[str, int]] = {}           # bytes by number of samples
        self.weights_before: dict[str, np.ndarray] = {}
        self._look("parameters")
        self._look("net.grads")
        self._look("acc.buffer")

    def _side(self, shapes) -> int:
        """Pixels along a side that keep all pictures of a window within the budget."""
        times = 3 + (1 + self.acc.staged) * (self.steps + 4)     # weights twice, their change, and each stage that writes gradients
        for side in (SIDE, 48, 32, 24, 16, 8):
            if times * sum(pixel_count(shape, side) for shape in shapes) <= BUDGET:
                return side
        return 4

    def _image_side(self) -> tuple[int, int]:
        """The same for the inputs: pixels along a side, samples of each micro-batch."""
        widest = max((max(shape[1:]) for shape in self.images.values() if shape), default=1)
        channels = sum(3 if shape[0] == 3 else 1 for shape in self.images.values() if shape)
        shown = min(SAMPLES, self.acc.micro_batch)
        for side in (IMAGE_SIDE, 24, 16, 12, 8):
            if channels * self.steps * shown * min(side, widest) ** 2 <= BUDGET:
                return side, shown
        return 8, max(1, BUDGET // (channels * self.steps * 64))

    # ---- one event ----

    def take(self, event) -> None:
        acc, k = self.acc, event.micro_step
        if event.stage == "backward" and self.followed is None:
            self.followed = self._choose()
        parts = {"activations": "output", "acc.loss_sum": None, "acc.weight_sum": None}
        for what in event.changed:
            self._look(parts.get(what, what), k)
        alive = k is not None and event.stage != "accumulate"    # the activations
        passing = {"output", *self.inputs}
        after = self._element()
        row = {
            "stage": event.stage, "micro_step": k, "changed": list(event.changed), "values": dict(event.values),
            "loss_sum": acc.loss_sum, "weight_sum": acc.weight_sum, "samples": acc._core.sums()[3],
            "norms": {n: v for n, v in self.norms.items() if n != "output" or alive},
            "pictures": {n: p for n, p in self.pictures.items() if alive or n not in passing},
            "bytes": self._alive(event.stage, k),
            "title": dict(zip(LANGUAGES, STAGES[event.stage])),
        }
        if event.stage == "forward":
            row |= self._guess(k)
        elif event.stage in ("loss", "backward") and "predicted" in self.events[-1]:
            row |= {name: self.events[-1][name] for name in ("predicted", "targets")}
        rejected = event.stage == "accumulate" and acc.weight_sum == self.sums[1] and self.events[-2]["values"]["weight"] > 0
        row["formula"] = self._formula(event, after, rejected)
        row["explanation"] = {language: self._explain(row, rejected, language) for language in LANGUAGES}
        self.events.append(row)
        self.before, self.sums = after, (acc.loss_sum, acc.weight_sum)
        self.pictures = {n: p for n, p in self.pictures.items() if not n.endswith(".change")}
        if event.stage in ("normalize", "clip"):
            self.weights_before = {name: self.net._parameters[name].data.copy() for name in self.pictured}

    def _piece(self, k: int) -> slice:
        return slice((k - 1) * self.acc.micro_batch, min(k * self.acc.micro_batch, self.total))

    def _look(self, what: str | None, k: int | None = None) -> None:
        """Norms and pictures of what a stage wrote."""
        net, acc = self.net, self.acc
        if what == "output":
            output = net._prediction()
            self.norms["output"] = _norm(output)
            self.pictures["output"] = signed(output, self.row_side)
            for name, a in self.inputs.items():
                part = a[self._piece(k)]
                if shape := self.images[name]:
                    low, high = self.ranges[name]
                    self.pictures[name] = images(part[:self.shown].reshape(-1, *shape), low, high, self.image_side)
                else:
                    self.pictures[name] = signed(part.reshape(len(part), -1), self.row_side)
            return
        if what in ("net.grads", "acc.buffer"):
            end = ".grad" if what == "net.grads" else ".buffer"
            if end == ".buffer" and not acc.staged:
                self.norms["buffer"] = self.norms["grads"]
                return
            arrays = {name + end: p.of(net.grads if end == ".grad" else acc.buffer) for name, p in net._parameters.items() if p.grad is not None}
            self.norms["grads" if end == ".grad" else "buffer"] = _norm(*arrays.values())
            if end == ".grad" and not acc.staged:
                self.norms["buffer"] = self.norms["grads"]
        elif what == "parameters":
            arrays = {name: p.data for name, p in net._parameters.items()}
            for name, old in self.weights_before.items():
                self.pictures[name + ".change"] = signed(net._parameters[name].data - old, self.side)
        else:
            return
        for name, a in arrays.items():
            self.norms[name] = _norm(a)
            if name.removesuffix(".grad").removesuffix(".buffer") in self.pictured or name in self.pictured:
                self.pictures[name] = signed(a, self.side)

    def _choose(self):
        """The element with the largest gradient after the first backward; not of a tied parameter, whose uses are added up later."""
        uses = np.bincount([p for row in self.net._node_info for p in row[4]], minlength=len(self.net._param_names))
        candidates = [p for i, (name, p) in enumerate(self.net._parameters.items()) if p.grad is not None and uses[i] == 1 and p.grad.size]
        best = max(candidates or [p for p in self.net._parameters.values() if p.grad is not None],
                   key=lambda p: np.max(_magnitude(p.grad)), default=None)
        if best is None:
            return None
        index = np.unravel_index(np.argmax(_magnitude(best.grad)), best.shape)
        self.before = Element(float(best.data[index]), 0.0, 0.0)
        return best, tuple(int(i) for i in index)

    def _element(self) -> Element | None:
        if self.followed is None:
            return None
        p, index = self.followed
        state = {key: float(a[index]) for key, a in self.acc.optimizer.state.get(p.name, {}).items()}
        return Element(float(p.data[index]), float(p.grad[index]), float(p.of(self.acc.buffer)[index]), state)

    def _formula(self, event, after, rejected) -> list[tuple[str, str]]:
        acc, before = self.acc, self.before
        if event.stage == "forward":
            part = self._piece(event.micro_step)
            n = part.stop - part.start
            sizes_in = ", ".join(str((n, *a.shape[1:])) for a in self.inputs.values())
            return [(f"output = network(x[{part.start}:{part.stop}])", f"{sizes_in} → {self.net._prediction().shape}")]
        if event.stage == "loss":
            layer = self.net._loss
            return formulas.loss(layer.kind, layer.options(), event.values["loss_sum"], event.values["weight"])
        if after is None:
            return []
        if event.stage == "backward":
            return formulas.backward(acc, before, after)
        if event.stage == "accumulate":
            return formulas.accumulate(acc, before, after, self.sums, rejected)
        if event.stage == "normalize":
            return formulas.normalize(acc, before, after)
        if event.stage == "clip":
            return formulas.clip(acc, before, after, event.values["grad_norm"])
        if event.stage == "update":
            optimizer, name = acc.optimizer, self.followed[0].name
            group = optimizer.groups[optimizer._indices[self.net._param_names.index(name)]]
            return formulas.update(optimizer, group, optimizer.updates, before, after)
        return formulas.clear(before, acc.staged)

    def _guess(self, k: int) -> dict:
        """Classes that the network says and that are right, of the pictured samples."""
        output = self.net._prediction()
        if self.net._loss.kind != "cross_entropy_loss" or output.ndim != 2 or not any(self.images.values()):
            return {}
        targets = self.y[self._piece(k)][:self.shown].astype(int).tolist()
        ignored = self.net._loss.ignore_index
        return {"predicted": output[:self.shown].argmax(axis=1).tolist(), "targets": [None if t == ignored else t for t in targets]}

    def _alive(self, stage: str, k: int | None) -> dict[str, int]:
        n = min(self.acc.micro_batch, self.total) if k is None else self._piece(k).stop - self._piece(k).start
        if n not in self.kinds:
            self.kinds[n] = self.net.memory.by_kind(n)
        return needed(self.kinds[n], stage, k == 1, self.acc.staged)

    def _explain(self, row: dict, rejected: bool, language: str) -> str:
        acc, stage, k, values = self.acc, row["stage"], row["micro_step"], row["values"]
        key = stage
        last = self.events[-1]["norms"] if self.events else {"buffer": 0.0, "grads": 0.0}
        n = 0 if k is None else self._piece(k).stop - self._piece(k).start
        fields = {"k": k, "before": number(last["buffer"]), "after": number(row["norms"]["buffer"]), "gradient": number(row["norms"]["grads"]),
                  "weight_sum": number(row["weight_sum"]), "optimizer": type(acc.optimizer).__name__,
                  "samples": phrase("samples", language, n), "these": phrase("these", language, n),
                  "window": phrase("window", language, self.total), "micro_batches": phrase("micro_batches", language, self.steps),
                  "all_in": phrase("all_in", language, self.steps)}
        if stage == "forward":
            fields["output"] = " × ".join(map(str, self.net._prediction().shape))
        elif stage == "loss":
            fields["loss"] = number(values["loss_sum"])
            fields["mean"] = number(values["loss_sum"] / values["weight"] if values["weight"] else math.nan)
        elif stage == "backward":
            key = "backward.staged" if acc.staged else "backward.first" if k == 1 else "backward"
        elif stage == "accumulate":
            key = "accumulate.rejected" if rejected else "accumulate.staged" if acc.staged else "accumulate"
        elif stage == "normalize" and acc.reduction != "mean":
            key = f"normalize.{acc.reduction}"
        elif stage == "clip":
            key = "clip" if values["clipped"] else "clip.kept"
            fields |= {"norm": number(values["grad_norm"]), "limit": number(acc.max_grad_norm),
                       "factor": number(min(1.0, acc.max_grad_norm / (values["grad_norm"] + 1e-6)))}
        elif stage == "update":
            fields |= {"lr": number(values["lr"]), "loss": number(values["loss"])}
        elif stage == "clear" and acc.last_update.skipped:
            key = "clear.finite" if "NaN" in acc.last_update.reason else "clear.weight"
        return EXPLANATIONS[key][LANGUAGES.index(language)].format(**fields)

    # ---- the whole ----

    def recording(self) -> Recording:
        acc, net = self.acc, self.net
        followed = None
        if self.followed:
            p, index = self.followed
            followed = f"{p.name}[{', '.join(map(str, index))}]"
        try:
            full_batch = net.memory.bytes(self.total)
        except ValueError:                                   # more bytes than can be counted
            full_batch = None
        window = {"samples": self.total, "micro_steps": self.steps, "micro_batch": acc.micro_batch, "reduction": acc.reduction, "staged": acc.staged,
                  "optimizer": type(acc.optimizer).__name__, "followed": followed, "skipped": acc.last_update.skipped,
                  "inputs": {name: list(a.shape[1:]) for name, a in self.inputs.items()}}
        memory = {"reserved": net.memory.by_kind(), "limit": net.memory.limit, "full_batch": full_batch}
        parameters = [{"name": name, "shape": list(p.shape), "frozen": p.frozen, "pictured": name in self.pictured}
                      for name, p in net._parameters.items()]
        return Recording(self.events, acc.last_update, window, memory, parameters)


def _norm(*arrays: np.ndarray) -> float:
    """In float64, without a copy of the arrays."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.sqrt(sum(float(np.einsum(a, [*range(a.ndim)], a, [*range(a.ndim)], [], dtype=np.float64)) for a in arrays))


def _magnitude(a: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(a), np.abs(a), 0)


def _range(a: np.ndarray) -> tuple[float, float]:
    finite = a[np.isfinite(a)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _as_images(a: np.ndarray, image_shape) -> tuple[int, int, int] | None:
    """(channels, height, width) of an input whose samples are images, else None.

    Images are (1, h, w) and (3, h, w); and rows of h * w numbers: those of ``image_shape``, or without it squares from
    8 x 8 whose numbers are none negative, as handwritten digits are.
    """
    shape = a.shape[1:]
    if image_shape is not None:
        wanted = sizes("image_shape", image_shape)
        if len(wanted) == 2:
            wanted = (1, *wanted)
        if len(wanted) != 3 or wanted[0] not in (1, 3) or min(wanted) < 1:
            raise ValueError(f"image_shape={image_shape!r}: expected (height, width), (1, height, width) or (3, height, width)")
        return wanted if math.prod(shape) == math.prod(wanted) else None
    if len(shape) == 3 and shape[0] in (1, 3):
        return shape
    side = math.isqrt(shape[0]) if len(shape) == 1 else 0
    if side >= 8 and side * side == shape[0] and a.dtype.kind == "f" and a.size and a.min() >= 0:
        return 1, side, side
    return None


def _plain(value):
    """Python's own types, for JSON."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)
