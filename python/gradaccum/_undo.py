"""What a window changes beside gradients and parameters, remembered so that it can be put back."""
from __future__ import annotations

import numpy as np


class Undo:
    """Counters of an Accumulator and layer state of its network (running statistics, and what was collected for them), as they are now."""

    def __init__(self, acc):
        self._acc = acc
        self._counters = acc._core.get_state()["counters"]
        self._layers = layer_state(acc.net)

    def next_sample(self, number: int) -> None:
        """The next forward is that of an empty window, except that its first sample has this number in it, which dropout masks depend on."""
        c = self._counters
        self._acc._core.set_state("clear", (0, number, 0, 0), (0.0,) * 4 + (False,),
                                  (c["micro_steps"], c["updates"], c["samples"], c["elements"], c["weight"]))

    def empty(self) -> None:
        """Empties the window, however far it is, and counts none of it."""
        self._acc._core.clear(True)
        self._acc._micro_losses = []
        self.next_sample(0)

    def __call__(self) -> None:
        """Puts everything back."""
        self.empty()
        set_layer_state(self._acc.net, self._layers)


def layer_state(net) -> dict[str, np.ndarray]:
    """Copies of all that layers keep beside their parameters."""
    return {name: net._state_view(name).copy() for name in (*net._buffers, *net._private)}


def set_layer_state(net, layers: dict[str, np.ndarray]) -> None:
    """Puts ``layer_state`` back."""
    for name, array in layers.items():
        net._state_view(name, True)[...] = array
