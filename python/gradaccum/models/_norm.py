"""The choice of normalisation that the image models share."""
from .. import nn
from .._checks import choice


def norm_layer(norm: str | None, channels: int) -> nn.Module:
    """"batch": BatchNorm2d; "group": GroupNorm with 8 groups, or as many as divide; "ghost:N": GhostBatchNorm2d of N samples; None: nothing."""
    if norm is None:
        return nn.Identity()
    if norm.startswith("ghost:"):
        return nn.GhostBatchNorm2d(channels, int(norm[6:]))
    choice("norm", norm, ("batch", "group"))
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(next(g for g in (8, 4, 2, 1) if channels % g == 0), channels)
