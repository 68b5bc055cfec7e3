"""group_norm, instance_norm2d: a sample's own statistics, so every split has the same bits."""
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [
    (nn.GroupNorm(2, 4), (4, 3, 2)), (nn.GroupNorm(1, 3, affine=False), (3, 4, 4)), (nn.GroupNorm(3, 3, eps=0.1), (3, 2, 5)), (nn.GroupNorm(2, 8), (8,)),
    (nn.InstanceNorm2d(3), (3, 4, 2)), (nn.InstanceNorm2d(3, affine=True), (3, 4, 2)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_group_norm(layer, shape):
    check_layer(layer, shape)


@pytest.mark.parametrize("make, shape, text", [
    (lambda: nn.GroupNorm(3, 4), (4, 2, 2), "num_groups=3 does not divide num_channels=4"),
    (lambda: nn.GroupNorm(2, 4), (6, 2, 2), "num_channels should be 6"),
    (lambda: nn.GroupNorm(4, 4), (4,), "one value per group has no variance"),
    (lambda: nn.InstanceNorm2d(3), (3, 1, 1), "one value per group has no variance"),
    (lambda: nn.InstanceNorm2d(3, track_running_stats=True), (3, 2, 2), "track_running_stats=True is not supported"),
])
def test_what_cannot_be(make, shape, text):
    with pytest.raises(ValueError, match=text):
        ga.plan(make(), input_shape=shape, micro_batch=2)
