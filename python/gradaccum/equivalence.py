"""Does a split give what the full batch gives, and if not, why? ``ga.check_equivalence``."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Mapping

import numpy as np

from ._splits import accumulate, default_splits, pieces_of
from ._suspects import REASONS, Window, suspects
from .accumulator import Accumulator
from .network import Network
from .optim import Optimizer
from .plan import plan

_GRADIENTS = 1                                               # block of the core


@dataclass
class Equivalence:
    """Each split against the full batch. True if all bits are equal.

    Attributes:
        rows: one a split and parameter: split, parameter, max_abs, relative, cosine, equal. Of gradients, or with ``optimizer=`` of the change of
            the parameters in one update.
        losses: ``{split: window loss}``, where windows of this library ran.
        suspects: names of the usual bugs that explain the difference, the likelier first.
        reasons: ``{suspect: text}``.
        layers: names of layers that mix samples.
    """

    rows: list[dict]
    losses: dict[str, float]
    suspects: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    layers: list[str] = field(default_factory=list)

    def __bool__(self):
        return all(row["equal"] for row in self.rows) and len(set(self.losses.values())) <= 1

    @property
    def close(self) -> bool:
        """Equal, or different by rounding only: what another library can reach."""
        return bool(self) or self.suspects == ["rounding"]

    def __repr__(self):
        lines = [f"Equivalence: {'all bits equal' if self else 'equal up to rounding' if self.close else 'NOT equal'}",
                 f"  {'split':<16} {'parameter':<20} {'max abs':>10} {'relative':>10} {'1 - cosine':>11}  equal bits"]
        lines += [f"  {r['split']:<16} {r['parameter']:<20} {r['max_abs']:10.3g} {r['relative']:10.3g} {1 - r['cosine']:11.3g}  "
                  f"{'yes' if r['equal'] else 'NO'}" for r in self.rows]
        lines += [f"  usual suspect: {name}: {text}" for name, text in self.reasons.items()]
        if not self and not self.suspects:
            worst = max(self.rows, key=lambda r: r["relative"])
            lines.append(f"  no usual bug explains it; look at {worst['parameter']} first, it is off by {worst['relative']:.3g}")
        return "\n".join(lines)


def check_equivalence(net: Network, x, y, weight=None, splits=None, *, run: Callable | None = None, result=None,
                      optimizer: Callable[[Network], Optimizer] | None = None, **options) -> Equivalence:
    """Compares splits of a batch with the whole batch at once, and names the usual suspect. Works on copies: ``net`` stays as it is.

    What is compared with the exact mean over the batch: by default the windows of this library, which are equal bit for bit unless layers or
    ``options`` prevent it; or a loop of your own::

        def run(net, micro_batches):
            total = 0
            for x, y in micro_batches:
                net.forward(x); loss_sum, n = net.loss(y); net.backward()
                total += n
            return net.grads / total
        print(ga.check_equivalence(net, x, y, splits=[8], run=run))

    or a result of another framework: ``result={name: array}``, with PyTorch's names and shapes.

    Args:
        net: a network with a loss.
        x, y, weight: a batch of any size.
        splits: sizes of equal pieces, or lists of sizes; by default a few even and uneven ones.
        run: ``run(net, micro_batches)`` with a copy of the network, and a list of (x, y) or, if weights were given, (x, y, weight). Returns the
            gradient, flat or ``{name: array}``; None takes what is in ``net.grads``.
        result: the same from elsewhere; ``splits`` then holds the one split that it is of.
        optimizer: ``lambda net: optim.AdamW(net, ...)``: compares parameters after one update instead of gradients; ``run`` leaves them in the
            network (or returns them), ``result`` holds them.
        options: of the Accumulator: max_grad_norm, which right loops clip to once, and for windows of this library reduction, accumulator, staged,
            loss_scale.

    Returns:
        Equivalence: a table, ``suspects``, ``reasons``; true if all bits are equal, ``close`` if up to rounding. Suspects are found by what each bug
        would have given: mean of means, sum instead of mean, divided twice, wrong divisor, dropped tail, cleared inside the window, only the first
        micro-batch, clip per micro-batch, buffer precision (of gradients), batch statistics, AdamA (of updates), rounding.

    Raises:
        ValueError: arguments that do not fit; a batch without weight.
    """
    batch = _Batch(net, x, y, weight, optimizer, options)
    if run is not None and result is not None:
        raise ValueError("run and result are both a result to compare: give one")
    if splits is None:
        splits = batch.default_splits()
    splits = [(pieces, label_of(pieces)) for pieces in (pieces_of(batch.n, split) for split in splits)]
    if result is not None and len(splits) != 1:
        raise ValueError(f"result is of one split, but splits has {len(splits)}; give splits=[size], or splits=[[sizes]], that of your loop")
    right, loss = batch.window([batch.n], right=True)
    report = Equivalence([], {f"1 x {batch.n}": loss} if run is result is None else {}, layers=batch.layers)
    for pieces, label in splits:
        if run is not None:
            got = batch.run(run, pieces)
        elif result is not None:
            got = batch.flat(result, "result") - (net.params if optimizer else 0)
        else:
            got, report.losses[label] = batch.window(pieces)
        report.rows += batch.rows(label, got, right)
        if not np.array_equal(got, right):
            report.reasons |= batch.suspects(got, right, pieces, ours=run is result is None)
    if len(report.reasons) > 1:
        report.reasons.pop("rounding", None)                 # of another split; the bug comes first
    report.suspects = list(report.reasons)
    return report


def label_of(pieces: list[int]) -> str:
    """[32, 32] to "2 x 32", [3, 90, 3] to "3+90+3"."""
    return f"{len(pieces)} x {pieces[0]}" if len(set(pieces)) == 1 else "+".join(map(str, pieces[:4])) + ("+..." if len(pieces) > 4 else "")


class _Batch:
    """A batch, and copies of a network to run it on."""

    def __init__(self, net, x, y, weight, optimizer, options):
        if net._loss is None:
            raise ValueError("net: it was planned without a loss; use ga.plan(..., loss=nn.CrossEntropyLoss())")
        self.net, self.optimizer, self.options = net, optimizer, options
        self.x = {name: np.asarray(a) for name, a in zip(net._inputs, net._as_inputs(x))}
        self.y, self.weight = np.asarray(y), None if weight is None else np.asarray(weight)
        self.n, self.state = len(self.y), net.state_dict()
        self.layers = [node.name for node in net.nodes if node.mixes_samples] if net.training else []
        self.max_grad_norm = options.get("max_grad_norm")

    def default_splits(self) -> list:
        """Those that optimizers with windows of their own can do, too."""
        splits = default_splits(self.n)[1:]
        if self.optimizer is None or not self.optimizer(self.copy(1))._own_update:
            return splits
        return [m for m in splits if isinstance(m, int) and self.n % m == 0]

    def copy(self, micro_batch: int) -> Network:
        net = self.net
        shapes = {name: net._value_info[v][0] for name, v in net._inputs.items()}
        copy = plan(net._module, inputs=shapes, loss=net._loss, micro_batch=micro_batch, dtype=net.dtype.name, seed=net.seed, engine=net.engine)
        copy.load_state_dict(self.state)
        return copy.train(net.training)

    def parts(self, pieces):
        ends = np.cumsum(pieces)
        for first, last in zip([0, *ends[:-1]], ends):
            part = slice(first, last)
            yield {name: a[part] for name, a in self.x.items()}, self.y[part], None if self.weight is None else self.weight[part]

    # ---- results, as flat arrays: gradients, or changes of the parameters ----

    def window(self, pieces, right: bool = False) -> tuple[np.ndarray, float]:
        """This library's own; ``right``: what every split should give."""
        copy = self.copy(max(pieces))
        opt = self.optimizer(copy) if self.optimizer else None
        keep = opt is not None and opt._own_update               # AdamA takes no other
        options = self.options if keep or not right else {"max_grad_norm": self.max_grad_norm}
        acc = Accumulator(copy, opt, **options)
        before = copy.params.astype(np.float64)
        even = all(p == pieces[0] for p in pieces[:-1]) and pieces[-1] <= pieces[0]
        if opt is not None and even:
            record = acc.update(self.x, self.y, self.weight)
            self.check_weight(record.weight)
            return copy.params - before, record.loss
        accumulate(acc, self.x, self.y, self.weight, pieces)
        self.check_weight(acc.weight_sum)
        loss = acc.loss_sum / acc.weight_sum
        acc.normalize()
        if acc.max_grad_norm is not None:
            acc.clip()
        if opt is None:
            return copy.grads.astype(np.float64), loss
        opt.step()
        return copy.params - before, loss

    @staticmethod
    def check_weight(weight: float) -> None:
        if not weight > 0:
            raise ValueError("the batch has no weight (all targets ignored, or all weights 0), so there is no mean to compare")

    def run(self, run, pieces) -> np.ndarray:
        """The user's loop."""
        copy = self.copy(max(pieces))
        single = len(self.x) == 1
        micro_batches = []
        for x, y, weight in self.parts(pieces):
            x = next(iter(x.values())) if single else x
            micro_batches.append((x, y) if weight is None else (x, y, weight))
        before = copy.params.astype(np.float64)
        given = run(copy, micro_batches)
        if self.optimizer is not None:
            return (copy.params.astype(np.float64) if given is None else self.flat(given, "run")) - before
        if not np.array_equal(copy.params, before):
            raise ValueError("run: it changed the parameters; give optimizer=lambda net: optim.SGD(net, ...), the one it should be, to compare updates; or "
                             "return the gradient before the update")
        return copy.grads.astype(np.float64) if given is None else self.flat(given, "run")

    def flat(self, given, what: str) -> np.ndarray:
        """An array or arrays by name, in the order of ``net.grads``."""
        net, wanted = self.net, {name: p for name, p in self.net._parameters.items() if not p.frozen}
        out = net.params.astype(np.float64) if self.optimizer else np.zeros(net.params.size)
        if not isinstance(given, Mapping):
            given = _numbers(given, what)
            if given.shape != out.shape:
                raise ValueError(f"{what}: got an array of shape {given.shape}, expected {out.shape}, in the order of net.grads, or {{name: array}}")
            return given
        names = {name: net._param_names[i] for name, i in net._all_names.items()}
        unknown = [name for name in given if name not in names]
        missing = [name for name in wanted if name not in {names[g] for g in given if g in names}]
        if unknown or missing:
            raise ValueError(f"{what}: missing {', '.join(missing) or 'none'}; unexpected {', '.join(map(str, unknown)) or 'none'}")
        for name, value in given.items():
            p, value = net._parameters[names[name]], _numbers(value, f"{what}[{name!r}]")
            if value.shape != p.shape:
                raise ValueError(f"{what}[{name!r}]: got shape {value.shape}, expected {p.shape}")
            if not p.frozen:
                p.of(out)[...] = value
        return out

    # ---- comparing ----

    def rows(self, label, got, right) -> list[dict]:
        rows = []
        for name, p in self.net._parameters.items():
            if p.frozen:
                continue
            a, b = p.of(got).ravel(), p.of(right).ravel()
            size, own = float(np.linalg.norm(b)), float(np.linalg.norm(a))
            rows.append({"split": label, "parameter": name, "max_abs": float(np.abs(a - b).max(initial=0)),
                         "relative": float(np.linalg.norm(a - b)) / (size or 1.0), "cosine": float(a @ b) / (own * size) if size and own else 1.0,
                         "equal": bool(np.array_equal(a, b))})
        return rows

    def suspects(self, got, right, pieces, ours: bool) -> dict[str, str]:
        window = Window(lambda: self.micro_batches(pieces), self.max_grad_norm, self.layers)
        if self.optimizer is None:
            return suspects(got, right, window, self.net.dtype.name)
        copy = self.copy(1)
        opt = self.optimizer(copy)
        if ours and not opt.split_invariant:
            return {type(opt).__name__: REASONS["AdamA"]}
        group = opt.groups[0]
        plain_adam = opt.kind in (1, 2) and not group["weight_decay"] and not group["amsgrad"] and len(opt.groups) == 1 and not opt._own_update

        def effect(gradient) -> np.ndarray:
            copy.load_state_dict(self.state)
            copy._core.array(_GRADIENTS, 0, copy.grads.shape, True)[...] = gradient
            before = copy.params.astype(np.float64)
            self.optimizer(copy).step()
            return copy.params - before

        if opt._own_update:
            return {"batch statistics": REASONS["batch statistics"].format(layers=", ".join(self.layers))} if self.layers else {}
        return suspects(got, right, window, self.net.dtype.name, effect, (group["lr"], group["eps"]) if plain_adam else None)

    def micro_batches(self, pieces):
        """(gradient, weight, samples) of each, at its place in the window, which dropout masks depend on."""
        copy = self.copy(max(pieces))
        acc = Accumulator(copy, staged=True)
        acc.begin()
        for x, y, weight in self.parts(pieces):
            copy.forward(x)
            _, total = copy.loss(y, weight)
            copy.backward()
            yield copy.grads.astype(np.float64), total, len(y)
            acc.accumulate()
        acc.clear(discard=True)


def _numbers(value, what: str) -> np.ndarray:
    """Any real array, also a tensor that asks to be detached first."""
    array = np.asarray(value.detach() if hasattr(value, "detach") else value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{what}: dtype {array.dtype}, expected real numbers")
    return array.astype(np.float64)
