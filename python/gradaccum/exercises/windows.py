"""Checkers of lessons 3, 4 and 8: the window, its divisor, its boundary, and what belongs at the boundary."""
from __future__ import annotations

import numpy as np

from .. import Accumulator, models, nn, optim, plan
from ..data import digits
from .result import NotDone, call, exercise, near, numbers, require


def _gradients(answer, what: str, micro_batches, *more) -> float:
    """The learner's function on micro-batches of single numbers."""
    return float(numbers(call(answer, micro_batches, *more), (), f"what {what} returned for {micro_batches}"))


# ---- lesson 3 ----

def _digits_window(**options):
    """A 64-128-10 network for micro-batches of up to 128, its window, and 128 digits."""
    x, y, *_ = digits()
    net = plan(models.mlp(64, 128, 10), input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=128, seed=1)
    return net, Accumulator(net, optim.SGD(net, lr=0.1), **options), x[:128], y[:128]


@exercise("split_8_by_16")
def check_split_8_by_16(answer):
    """``split_8_by_16(net, acc, x, y)``: one update by hand of 128 samples as 8 micro-batches of 16."""
    full, whole, x, y = _digits_window()
    whole.update(x, y)
    net, acc, x, y = _digits_window()
    before = net.params.copy()
    call(answer, net, acc, x, y, copies=False)
    if acc.micro_steps == 0:
        raise NotDone
    require(acc.micro_steps == 8, f"The window took {acc.micro_steps} micro-batches, not 8. Did acc.accumulate() run after each backward?")
    require(acc.samples == 128, f"The window took {acc.samples} samples, not 128: cut x[16 * k:16 * (k + 1)], and y the same way.")
    require(acc.updates <= 1, f"{acc.updates} updates, expected one: normalize, step and clear belong after the loop.")
    require(acc.updates == 1 and not np.array_equal(before, net.params), "The parameters never changed: after the loop call acc.normalize() and "
            "acc.optimizer.step().")
    require(np.array_equal(net.params, full.params), "One update happened, but not the one of the full batch: are the samples the same, in their order?")
    require(acc.micro_step == 0, "The window is still full: acc.clear() gets it ready for the next one.")
    return "The parameters have the bits of 1 x 128."


@exercise("buffer_after")
def check_buffer_after(answer):
    """``buffer_after``: [after 1, after 2, after 3 micro-batches, after dividing] for gradient sums 1, 2, 4 of one sample each."""
    given = numbers(answer, (4,), "buffer_after")
    require(not near(given[:3], [1, 2, 4]), "These are the gradients of the single micro-batches. The buffer keeps what it had and adds.")
    require(near(given[:3], [1, 3, 7]), "The buffer starts at 0 and grows by 1, then by 2, then by 4.")
    require(not near(given[3], 7), "The last number is after normalize: divide by the weight, three samples.")
    require(not near(given[3], 4 / 3), "4/3 would mean that only the last micro-batch survived.")
    require(near(given[3], 7 / 3, 1e-3), f"7 divided by three samples is not {given[3]:g}.")
    return "Add, add, add, then divide once."


# ---- lesson 4: three wrong loops that real trainers had ----

@exercise("window_gradient")
def check_window_gradient(answer):
    """``window_gradient(micro_batches)``: the gradient of the window from pairs (gradient sum, number of tokens); the divisor is repaired."""
    right = (8 + 60) / 64
    got = _gradients(answer, "window_gradient", [(8.0, 4), (60.0, 60)])
    require(not near(got, 1.5), "1.5 is the mean of the two means: the 4 tokens count as much as the 60. Add the sums, add the tokens, divide once.")
    require(not near(got, 68), "68 is the sum; it still has to be divided, by the tokens of the window.")
    require(not near(got, 34), "34 is the sum divided by the number of micro-batches; divide by the number of tokens, 4 + 60.")
    require(near(got, right), f"For sums 8 (4 tokens) and 60 (60 tokens) you return {got:g}, expected 68 / 64 = {right:g}.")
    for split in ([(68.0, 64)], [(2.0, 1), (6.0, 3), (60.0, 60)]):
        require(near(_gradients(answer, "window_gradient", split), right), f"The same 64 tokens cut as {split} must give the same {right:g}.")
    return "68 / 64 = 1.0625, however the tokens are cut."


@exercise("accumulate")
def check_accumulate(answer):
    """``accumulate(gradients)``: the sum that is in the buffer after all micro-batches; the clearing is at the right place."""
    got = _gradients(answer, "accumulate", [1.0, 2.0, 4.0])
    require(not near(got, 4), "4 is the last micro-batch alone: the buffer is cleared inside the window. Clear before the loop, once.")
    require(not near(got, 0), "0: the buffer is cleared after the last micro-batch, before anybody used it.")
    require(not near(got, 3), "3: the last micro-batch is missing. Clear before the loop, once, and add every gradient.")
    require(near(got, 7), f"Gradients 1, 2 and 4 left {got:g} in the buffer, expected 7.")
    require(near(_gradients(answer, "accumulate", [5.0]), 5), "A window of one micro-batch, 5, must leave 5.")
    return "1 + 2 + 4 = 7: cleared once a window."


@exercise("window_sizes")
def check_window_sizes(answer):
    """``window_sizes(micro_batches, K)``: how many micro-batches each update gets, the last one included."""
    def sizes(n, k):
        got = call(answer, n, k)
        require(isinstance(got, (list, tuple)), f"expected a list of window sizes, got {got!r}")
        return list(got)

    got = sizes(9, 4)
    require(got[:1] != [1], f"9 micro-batches with K=4 give windows {got}: the first update comes after a single micro-batch, because 0 % 4 == 0. "
            "Test (index + 1) % K == 0.")
    require(got != [4, 4], "The ninth micro-batch is computed and thrown away: after the loop, what is left needs its own update.")
    require(got == [4, 4, 1], f"9 micro-batches with K=4 give windows {got}, expected [4, 4, 1].")
    require(sizes(8, 4) == [4, 4], f"8 micro-batches with K=4 give {sizes(8, 4)}: no empty window at the end, please.")
    require(sizes(3, 8) == [3], f"An epoch of 3 micro-batches with K=8 gives {sizes(3, 8)}, expected [3]: else nothing would ever be learned.")
    return "[4, 4, 1]: the boundary is after the K-th, and the tail counts."


# ---- lesson 8 ----

@exercise("clip_once")
def check_clip_once(answer):
    """``clip_once(gradients, max_norm)``: the window's gradient, a mean over micro-batches of one sample each, clipped at the right stage."""
    def run(gradients, limit):
        return numbers(call(answer, [np.array(g, dtype=float) for g in gradients], limit), (2,), "what clip_once returned")

    got = run([(2, 0), (0, 2)], 1.0)
    right = np.array([0.5, 0.5]) * np.sqrt(2)
    require(not near(got, [0.4472136, 0.8944272]), "(0.447, 0.894): the running sum is clipped after every micro-batch, so the first one is shrunk twice. "
            "Add all, divide, then clip once.")
    require(not near(got, [0.5, 0.5]), "(0.5, 0.5): every micro-batch is clipped by itself. Add all, divide, then clip once.")
    require(not near(got, [1, 1]), "(1, 1) has the norm 1.41, above the limit 1: it was not clipped at all.")
    require(not near(got, right / 2), "(0.354, 0.354): the sum is clipped before it is divided; the limit is meant for the divided gradient.")
    require(near(got, right), f"(2, 0) and (0, 2) with limit 1 give {np.round(got, 4)}, expected (0.7071, 0.7071).")
    small = run([(1, 0), (0, 1)] * 2, 2.0)
    require(near(small, [0.5, 0.5]), f"The mean (0.5, 0.5) is below the limit 2 and must stay as it is; you return {np.round(small, 4)}.")
    return "Add, divide, clip: the direction of the window stays, only its length is limited."


@exercise("who_breaks")
def check_who_breaks(answer):
    """``who_breaks``: set of those layers whose result for a sample depends on the other samples of the micro-batch."""
    offered = {"BatchNorm2d", "GroupNorm", "LayerNorm", "Dropout", "Conv2d", "MaxPool2d"}
    require(isinstance(answer, (set, list, tuple)), f"expected a set of names, got {answer!r}")
    if not answer or ... in answer:
        raise NotDone
    given = set(answer)
    require(given <= offered, f"{', '.join(sorted(map(str, given - offered)))}: choose among {', '.join(sorted(offered))}.")
    require("BatchNorm2d" in given, "One is missing: which layer computes a mean over the samples of the micro-batch?")
    for name, why in (("GroupNorm", "it computes its mean inside one sample"), ("LayerNorm", "it computes its mean inside one sample"),
                      ("Dropout", "here its mask depends on the number of the sample, not on the micro-batch")):
        require(name not in given, f"{name} does not break it: {why}.")
    require(given == {"BatchNorm2d"}, "Convolution and pooling look at one sample at a time.")
    return "Batch statistics are those of a micro-batch; nothing else here mixes samples."


__all__ = [name for name in list(globals()) if name.startswith("check_")]
