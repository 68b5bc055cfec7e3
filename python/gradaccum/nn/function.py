"""A layer written in NumPy."""
from __future__ import annotations

import numpy as np

from .module import Module, Symbol
from .parameter import Parameter


class Function(Module):
    """A layer with ``forward`` and ``backward`` in NumPy, used like any other.

    Subclass it and write::

        class Square(nn.Function):
            def forward(self, x):            # x: (n, ...) array; returns y: (n, ...)
                self.x = x.copy()            # arrays are live views: copy what backward needs
                return x * x
            def backward(self, grad):        # grad: dL/dy; returns dL/dx (a tuple for several inputs)
                return 2 * self.x * grad

    Parameters are attributes: ``self.scale = nn.Parameter((64,))``; read ``self.scale.data``, and in backward ADD to
    ``self.scale.grad``. ``self.training`` tells the mode. The output's shape is found by one call with zeros when planned.

    The window keeps its promise of equal bits only as far as the NumPy code does: ``ga.testing.check_split`` tells.
    """

    training = True

    def forward(self, *inputs):
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, x)")

    def backward(self, grad):
        raise NotImplementedError(f"{type(self).__name__} has no backward(self, grad)")

    def __call__(self, *inputs):
        if not any(isinstance(s, Symbol) for s in inputs):
            return self.forward(*inputs)                     # plain NumPy, to try it out
        trace = inputs[0]._trace
        if id(self) in trace.functions:
            raise ValueError(f"{type(self).__name__}: this object is called twice in one network, and what its forward keeps for backward would "
                             "be overwritten; make one object for each call")
        trace.functions.add(id(self))
        parameters = [(name, value) for name, value in vars(self).items() if isinstance(value, Parameter)]
        rng = np.random.default_rng(0)
        for _, p in parameters:
            p._bound = (np.asarray(p.init(rng, p.shape)), None)
        probe = np.asarray(self.forward(*(np.zeros((1, *s.shape), np.int64 if s._integer else np.float64) for s in inputs)))
        for _, p in parameters:
            p._bound = None
        if probe.ndim < 1 or probe.shape[0] != 1:
            raise ValueError(f"{type(self).__name__}: forward of 1 sample returned shape {probe.shape}; the first axis must be the samples")
        sequence = any(s._sequence for s in inputs) and probe.ndim > 1 and probe.shape[1] == inputs[0].shape[0]
        owner = object()                                     # stands for this network
        return trace.add_function(self, lambda *call: self._call(owner, *call), probe.shape[1:], sequence, list(inputs), parameters)

    _owner = None

    def _call(self, owner, xs, y, dy, training, params, grads):
        """Called by the core: forward if there is no dy, else backward."""
        if dy is not None and self._owner is not owner:
            raise RuntimeError(f"{type(self).__name__}: another network ran this object's forward before this network's backward, so what it kept "
                               "belongs to the other; give each network a model of its own")
        self._owner = owner
        self.training = bool(training)
        own = [value for value in vars(self).values() if isinstance(value, Parameter)]
        for p, data, grad in zip(own, params, grads or [None] * len(own)):
            p._bound = (data, grad)
        try:
            if dy is None:
                return self.forward(*xs)
            result = self.backward(dy)
            return result if isinstance(result, tuple) else (result,)
        finally:
            for p in own:
                p._bound = None
