"""From the gradients of micro-batches to one gradient.

Micro-batch i has the loss sum S_i, the weight n_i (samples, tokens, ...) and G_i, the gradient of S_i. The mean loss of the whole
batch is (S_1 + ... + S_K) / (n_1 + ... + n_K), and a gradient of a sum is the sum of gradients, so its gradient is

    (G_1 + ... + G_K) / (n_1 + ... + n_K)                    the weighted mean: add everything, divide once

The usual recipe divides every micro-batch's loss by its own n_i, and by K:

    (G_1 / n_1 + ... + G_K / n_K) / K                        the mean of means: equal to it only if all n_i are equal

With losses 2 on 4 tokens and 1 on 60 tokens the first gives (8 + 60) / 64 = 1.0625, the second (2 + 1) / 2 = 1.5.
"""


def weighted_mean(micro_batches):
    """(loss, gradient) of the window from (loss_sum, weight, gradient) triples."""
    total = sum(weight for _, weight, _ in micro_batches)
    return sum(s for s, _, _ in micro_batches) / total, sum(g for _, _, g in micro_batches) / total


def mean_of_means(micro_batches):
    """The same by the usual recipe, to be compared."""
    k = len(micro_batches)
    return sum(s / n for s, n, _ in micro_batches) / k, sum(g / n for _, n, g in micro_batches) / k
