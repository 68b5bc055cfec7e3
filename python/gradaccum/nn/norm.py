"""Normalisation: by batch statistics, which accumulation changes, and by a sample's own, which it does not."""
from __future__ import annotations

import numpy as np

from .._checks import choice, whole
from .module import Layer, Symbol
from .parameter import Parameter, ones, zeros


class _BatchNorm(Layer):
    kind = "batch_norm"
    parameter_names = ("weight", "bias")
    rank = 1

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True, track_running_stats: bool = True, *,
                 running_stats: str = "micro_batch", frozen: bool = False):
        super().__init__()
        name = type(self).__name__
        self.num_features = whole(f"{name}: num_features", num_features)
        if momentum is None:
            raise ValueError(f"{name}: momentum=None (a cumulative average) is not supported; give a number such as 0.1")
        choice(f"{name}: running_stats", running_stats, ("micro_batch", "window"))
        if frozen and not track_running_stats:
            raise ValueError(f"{name}: frozen=True needs running statistics")
        self.eps, self.momentum, self.track_running_stats = eps, momentum, track_running_stats
        self.running_stats, self.frozen = running_stats, frozen
        self.weight = Parameter((num_features,), ones) if affine else None
        self.bias = Parameter((num_features,), zeros) if affine else None

    def options(self):
        return {"eps": self.eps, "momentum": self.momentum, "affine": self.weight is not None, "track_running_stats": self.track_running_stats,
                "window": self.running_stats == "window", "frozen": self.frozen}

    def state(self):
        if not self.track_running_stats:
            return []
        c = self.num_features
        return [("running_mean", np.zeros(c)), ("running_var", np.ones(c)), ("num_batches_tracked", np.zeros(())), ("_pooled", np.zeros(1 + 2 * c))]

    def check(self, x: Symbol):
        if len(x.shape) != self.rank or x.shape[0] != self.num_features:
            want = "(num_features,)" if self.rank == 1 else "(num_features, height, width)"
            raise ValueError(f"{self!r}: the input has shape {x.shape} per sample, expected {want} with num_features={self.num_features}")

    def extra_repr(self):
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm1d(_BatchNorm):
    """Normalises each feature over the micro-batch (Ioffe, Szegedy 2015). See BatchNorm2d."""


class BatchNorm2d(_BatchNorm):
    """Normalises each channel over the samples of the micro-batch and all pixels (Ioffe, Szegedy 2015).

    Args:
        num_features, eps, momentum, affine, track_running_stats: as torch.nn.BatchNorm2d.
        running_stats: "micro_batch" updates the running statistics at every micro-batch, as everywhere else: K times per update.
            "window" pools the moments of the window's micro-batches and updates once per update.
        frozen: use the running statistics in training, too.

    Batch statistics make a sample's result depend on its micro-batch: an accumulated window is not the full batch. GroupNorm has no
    such statistics; GhostBatchNorm2d has the same ones in every split.
    """

    rank = 3


class _GhostBatchNorm(_BatchNorm):
    kind = "ghost_batch_norm"

    def __init__(self, num_features: int, virtual_batch_size: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
                 track_running_stats: bool = True, *, running_stats: str = "micro_batch", frozen: bool = False):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, running_stats=running_stats, frozen=frozen)
        self.virtual_batch_size = whole(f"{type(self).__name__}: virtual_batch_size", virtual_batch_size)

    def options(self):
        return super().options() | {"ghost": self.virtual_batch_size}

    def extra_repr(self):
        return f"{self.num_features}, virtual_batch_size={self.virtual_batch_size}"


class GhostBatchNorm1d(_GhostBatchNorm):
    """BatchNorm1d over groups of ``virtual_batch_size`` samples. See GhostBatchNorm2d."""


class GhostBatchNorm2d(_GhostBatchNorm):
    """BatchNorm2d over groups ("ghosts") of ``virtual_batch_size`` samples (Hoffer, Hubara, Soudry 2017, arXiv:1705.08741).

    As long as micro-batches are multiples of it, a window has the same ghosts in every split, and the same bits.
    """

    rank = 3


class GroupNorm(Layer):
    """Normalises groups of channels of each sample by the sample's own statistics (Wu, He 2018): the same bits for every split."""

    kind = "group_norm"
    parameter_names = ("weight", "bias")

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True):
        super().__init__()
        self.num_groups, self.num_channels = whole("GroupNorm: num_groups", num_groups), whole("GroupNorm: num_channels", num_channels)
        if num_channels % num_groups:
            raise ValueError(f"GroupNorm: num_groups={num_groups} does not divide num_channels={num_channels}")
        self.eps = eps
        self.weight = Parameter((num_channels,), ones) if affine else None
        self.bias = Parameter((num_channels,), zeros) if affine else None

    def options(self):
        return {"num_groups": self.num_groups, "eps": self.eps, "affine": self.weight is not None}

    def check(self, x: Symbol):
        if x.shape[0] != self.num_channels:
            raise ValueError(f"{self!r}: the input has shape {x.shape} per sample, so num_channels should be {x.shape[0]}")

    def extra_repr(self):
        return f"{self.num_groups}, {self.num_channels}"


class InstanceNorm2d(Layer):
    """Normalises each channel of each image by itself (Ulyanov et al. 2016). Without running statistics, PyTorch's default."""

    kind = "instance_norm2d"
    parameter_names = ("weight", "bias")

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False):
        super().__init__()
        if track_running_stats:
            raise ValueError("InstanceNorm2d: track_running_stats=True is not supported; the default, the image's own statistics, is")
        self.num_features, self.eps = whole("InstanceNorm2d: num_features", num_features), eps
        self.weight = Parameter((num_features,), ones) if affine else None
        self.bias = Parameter((num_features,), zeros) if affine else None

    def options(self):
        return {"eps": self.eps, "affine": self.weight is not None}

    def check(self, x: Symbol):
        if len(x.shape) != 3 or x.shape[0] != self.num_features:
            raise ValueError(f"{self!r}: the input has shape {x.shape} per sample, expected (num_features={self.num_features}, height, width)")

    def extra_repr(self):
        return f"{self.num_features}"
