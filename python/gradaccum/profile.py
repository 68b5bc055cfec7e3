"""Where the time of a step goes: seconds of each node, and how fast that is."""
from __future__ import annotations

import numpy as np

_COLUMNS = ("forward", "backward", "pack")


class Profile:
    """Seconds by node of what runs on a network inside a ``with`` block.

    ``rows`` has one dict a node, in order, and a last one for the update (norm, clipping, step):
        node, kind; samples that went through it.
        forward, backward, pack: seconds; a forward that ``recompute`` repeats counts as backward.
        gflops_forward, gflops_backward: 1e9 multiply-adds x 2 a second of its products (linear, convolution, attention); None without.
        gb_forward, gb_backward: 1e9 bytes a second, of the bytes that have to be moved at least: inputs, output, parameters and their
            gradients. What a cache saves or a workspace costs is not in it.
        share: of all seconds.
    While nothing is profiled the network looks at no clock.
    """

    def __init__(self, net):
        self._net = net
        self._raw = np.zeros((len(net.nodes) + 1, 4))

    def __enter__(self) -> "Profile":
        self._net._core.profile(self._raw)
        return self

    def __exit__(self, *exception) -> None:
        self._net._core.profile(None)

    @property
    def seconds(self) -> float:
        """Of all nodes and the update."""
        return float(self._raw[:, :3].sum())

    @property
    def rows(self) -> list[dict]:
        """See the class."""
        net, rows, total = self._net, [], self.seconds or 1.0
        for node, info, (*seconds, samples) in zip(net.nodes, net._node_info, self._raw.tolist()):
            row = {"node": node.name, "kind": node.kind, "samples": int(samples)} | dict(zip(_COLUMNS, seconds))
            given = [net._value_info[v][4] and net._value_info[v][1] >= 0 for v in info[2]]
            trained = any(not net._parameters[name].frozen for name in node.parameters)
            flops, moved = info[9] * samples, _bytes(net, info)
            row["gflops_forward"] = _rate(flops, seconds[0]) if flops else None
            row["gflops_backward"] = _rate(flops * (any(given) + trained), seconds[1]) if flops else None
            row["gb_forward"], row["gb_backward"] = _rate(moved[0] * samples, seconds[0]), _rate(moved[1] * samples, seconds[1])
            row["share"] = sum(seconds) / total
            rows.append(row)
        update = float(self._raw[-1, 1])
        rows.append({"node": "update", "kind": "", "samples": 0, "forward": 0.0, "backward": update, "pack": 0.0, "gflops_forward": None,
                     "gflops_backward": None, "gb_forward": 0.0, "gb_backward": 0.0, "share": update / total})
        return rows

    def __repr__(self):
        number = lambda value: f"{value:>8.1f}" if value else f"{'':8}"  # noqa: E731
        lines = [f"{'node':<24} {'kind':<20} {'forward':>8} {'backward':>8} {'pack':>8} ms  {'GFLOP/s':>8} {'':8}  {'GB/s':>8} {'':8}  share"]
        for r in self.rows:
            numbers = [number(1e3 * r[k]) for k in _COLUMNS] + [number(r[k]) for k in ("gflops_forward", "gflops_backward", "gb_forward", "gb_backward")]
            lines.append(f"{r['node'][-24:]:<24} {r['kind'][:20]:<20} {' '.join(numbers[:3])}     {' '.join(numbers[3:5])}  {' '.join(numbers[5:])} "
                         f"{100 * r['share']:5.1f} %")
        return "\n".join([*lines, f"{'all':<24} {'':<20} {1e3 * self.seconds:8.1f} ms"])


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds * 1e-9 if seconds > 0 else 0.0


def _bytes(net, info) -> tuple[float, float]:
    """Bytes a sample moves at least, forward and backward; parameters are spread over the samples of a full micro-batch."""
    size = net.dtype.itemsize
    elements = lambda v: float(np.prod(net._value_info[v][0], dtype=np.float64)) * (8 if net._value_info[v][2] else size)  # noqa: E731
    x = sum(elements(v) for v in info[2])
    y = elements(info[3]) if info[3] >= 0 else 0.0
    w = sum(float(np.prod(net._parameters[net._param_names[p]].shape, dtype=np.float64)) for p in info[4]) * size / net.micro_batch
    return x + y + w, 2 * x + y + 3 * w
