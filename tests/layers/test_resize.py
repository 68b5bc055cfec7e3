"""upsample, zero_pad2d, cat."""
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [
    (nn.Upsample(scale_factor=2), (3, 4, 3)), (nn.Upsample(size=(5, 7)), (2, 3, 4)), (nn.Upsample(size=2), (2, 5, 4)),
    (nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4)), (nn.Upsample(size=(7, 5), mode="bilinear", align_corners=True), (2, 3, 4)),
    (nn.Upsample(size=1, mode="bilinear", align_corners=True), (2, 3, 4)), (nn.Upsample(scale_factor=3, mode="bilinear"), (1, 1, 1)),
    (nn.ZeroPad2d(2), (2, 3, 4)), (nn.ZeroPad2d((1, 0, 2, 3)), (2, 3, 4)), (nn.ZeroPad2d((-1, 2, 0, -1)), (2, 3, 4)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_resize(layer, shape):
    check_layer(layer, shape)


@pytest.mark.parametrize("shapes", [[(2, 3, 4), (5, 3, 4)], [(4,), (1,), (3,)], [(3, 2), (3, 5)]], ids=str)
def test_cat(shapes):
    check_layer(nn.Cat(), inputs={f"x{i}": s for i, s in enumerate(shapes)})


def test_cat_of_a_value_with_itself():
    class Doubled(nn.Module):
        def forward(self, x):
            return nn.functional.cat([x, x])

    check_layer(Doubled(), (3, 2, 2), against_reference=False)


def test_what_cannot_be():
    for make, text in [(lambda: nn.Upsample(), "either size or scale_factor"), (lambda: nn.Upsample(2, mode="cubic"), "mode='cubic'"),
                       (lambda: nn.Upsample(2, align_corners=True), "belongs to mode"), (lambda: nn.ZeroPad2d((-3, -3, 0, 0)), "nothing of the image"),
                       (lambda: nn.ZeroPad2d((1, 2)), "padding="), (lambda: nn.Upsample(scale_factor=1.5), "makes .3, 4. pixels 4.5 x 6; give size")]:
        with pytest.raises(ValueError, match=text):
            ga.plan(make(), input_shape=(2, 3, 4), micro_batch=1)
    with pytest.raises(ValueError, match=r"shapes \(2, 3, 4\) and \(2, 3, 5\) differ beside the channels"):
        ga.plan(nn.Cat(), inputs={"a": (2, 3, 4), "b": (2, 3, 5)}, micro_batch=1)
