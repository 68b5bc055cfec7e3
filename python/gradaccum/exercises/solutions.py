"""Reference solutions, by the names of the exercises. Checked by the checkers, shown folded in the lessons."""
from __future__ import annotations

import numpy as np

from gradaccum import nn
from gradaccum.exercises.planning import cnn_report

# One row an image, one column a class.
batch_shape = (20, 10)

# 45 micro-batches (44 of 32 and one of 29): 11 windows of 4, and the 45th alone, which acc.flush() applies.
updates_per_epoch = 12

# Probability minus one-hot label, then the sum of the two rows:
# [0.7 - 1, 0.2, 0.1] + [0.1, 0.3 - 1, 0.6]
bias_gradient = [-0.2, -0.5, 0.7]

which_stage = {"activations": "forward", "net.grads": "backward", "parameters": "update"}


class SquaredReLU(nn.Function):
    def forward(self, x):
        self.r = np.maximum(x, 0)
        return self.r ** 2

    def backward(self, grad):
        return 2 * self.r * grad                             # the factor 2 was missing


class Scale(nn.Function):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter((3,))

    def forward(self, x):
        self.x = x.copy()
        return x * self.scale.data

    def backward(self, grad):
        self.scale.grad[...] += (grad * self.x).sum(axis=0)  # it was =, which forgets the micro-batches before
        return grad * self.scale.data


def split_8_by_16(net, acc, x, y):
    acc.begin()
    for k in range(8):
        part = slice(16 * k, 16 * (k + 1))
        net.forward(x[part])
        net.loss(y[part])
        net.backward()
        acc.accumulate()
    acc.normalize()
    acc.optimizer.step()
    acc.clear()


# After each micro-batch, and after the division by three samples.
buffer_after = [1, 3, 7, 7 / 3]


def window_gradient(micro_batches):
    total, tokens = 0.0, 0
    for gradient_sum, n in micro_batches:
        total += gradient_sum
        tokens += n
    return total / tokens


def accumulate(gradients):
    buffer = 0.0
    for gradient in gradients:
        buffer += gradient
    return buffer


def window_sizes(micro_batches, K):
    sizes, waiting = [], 0
    for index in range(micro_batches):
        waiting += 1
        if (index + 1) % K == 0:
            sizes.append(waiting)
            waiting = 0
    if waiting:
        sizes.append(waiting)
    return sizes


memory = cnn_report()

# The report knows: 45 or a little less, as the workspaces of your processor want it.
largest_batch = memory.max_micro_batch("6 MiB")

# The first number of equal pieces that fit.
best_split = next((96 // k, k) for k in range(1, 97) if 96 % k == 0 and memory.bytes(96 // k) <= 4 * 2**20)


def first_costly(times):
    base = dict(times)[1]
    return min(steps for steps, seconds in times if seconds > 1.2 * base)


# 6,400 / 64 = 100 updates, each 0.04 s longer.
extra_time = 4.0

choose_rate = {"64 as 4 x 16": 0.1, "SGD, 16 to 4 x 16": 0.4, "Adam, 16 to 4 x 16": 0.002}

# 16 times the samples: a quarter of the noise.
noise_at_128 = 0.6


def clip_once(gradients, max_norm):
    mean = sum(gradients) / len(gradients)
    norm = np.linalg.norm(mean)
    return mean * min(1.0, max_norm / norm)


who_breaks = {"BatchNorm2d"}


def x_axis(record):
    return record["samples"]


def choose_setting(settings, limit):
    fits = [row for row in settings if row["mib"] <= limit]
    return min(fits, key=lambda row: row["seconds"], default=None)


# Clear, three lines of loop, clip, step.
pytorch_order = "ABCDEF"

diagnose = {
    "the gradient norm grows with K": "c",
    "K changes nothing but the number of updates": "a",
    "the first update comes after one micro-batch": "d",
    "loss and gradient norm drop in the last window of an epoch": "b",
}
