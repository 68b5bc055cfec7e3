"""Recurrent layers: one layer, one direction, batch first. They return the whole sequence of hidden states."""
from __future__ import annotations

import math

from .._checks import whole
from .module import Layer, Symbol
from .parameter import Parameter, uniform


class _Recurrent(Layer):
    parameter_names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    gates = 0

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = True, dropout: float = 0.0,
                 bidirectional: bool = False):
        super().__init__()
        name = type(self).__name__
        self.input_size, self.hidden_size = whole(f"{name}: input_size", input_size), whole(f"{name}: hidden_size", hidden_size)
        if num_layers != 1 or dropout != 0:
            raise ValueError(f"{name}: num_layers={num_layers}, dropout={dropout}: one layer is one node; put several in an nn.Sequential, with nn.Dropout "
                             "between them")
        if not batch_first:
            raise ValueError(f"{name}: batch_first=False is not supported: the first axis is always the samples")
        if bidirectional:
            raise ValueError(f"{name}: bidirectional=True is not supported")
        init, rows = uniform(1 / math.sqrt(hidden_size)), self.gates * hidden_size
        self.weight_ih_l0 = Parameter((rows, input_size), init)
        self.weight_hh_l0 = Parameter((rows, hidden_size), init)
        self.bias_ih_l0 = Parameter((rows,), init) if bias else None
        self.bias_hh_l0 = Parameter((rows,), init) if bias else None

    def options(self):
        return {"hidden_size": self.hidden_size, "bias": self.bias_ih_l0 is not None}

    def check(self, x: Symbol):
        if len(x.shape) == 2 and x.shape[1] != self.input_size:
            raise ValueError(f"{self!r}: the input has shape {x.shape} per sample, so input_size should be {x.shape[1]}")

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias_ih_l0 is not None else ", bias=False")


class LSTM(_Recurrent):
    """Long short-term memory over (T, input_size) per sample; returns (T, hidden_size), all hidden states (Hochreiter, Schmidhuber 1997).

    Args:
        input_size, hidden_size, bias: as torch.nn.LSTM. It starts from zeros; the last state of a sample is ``y[:, -1]``.

    Parameters, uniform in ±1/sqrt(hidden_size), gates in the order input, forget, cell, output: ``weight_ih_l0`` (4 hidden_size, input_size),
    ``weight_hh_l0`` (4 hidden_size, hidden_size), ``bias_ih_l0`` and ``bias_hh_l0`` (4 hidden_size,).
    """

    kind = "lstm"
    gates = 4


class GRU(_Recurrent):
    """Gated recurrent unit over (T, input_size) per sample; returns (T, hidden_size), all hidden states (Cho et al. 2014).

    Args:
        input_size, hidden_size, bias: as torch.nn.GRU. It starts from zeros.

    Parameters, uniform in ±1/sqrt(hidden_size), gates in the order reset, update, new: ``weight_ih_l0`` (3 hidden_size, input_size),
    ``weight_hh_l0`` (3 hidden_size, hidden_size), ``bias_ih_l0`` and ``bias_hh_l0`` (3 hidden_size,).
    """

    kind = "gru"
    gates = 3
