"""From the gradients of micro-batches to one gradient. Read this file first.

A batch is too large for the memory, so it comes in K micro-batches. Micro-batch i tells
three things:

    S_i   the sum of the losses of its elements (samples, tokens, pixels)
    n_i   their weight: how many there are
    G_i   the gradient of S_i

What we want is the loss of the whole batch, the mean over all its elements, and its gradient. The
sum over the batch is the sum over micro-batches, and a gradient of a sum is the sum of gradients.
So

    loss     = (S_1 + ... + S_K) / (n_1 + ... + n_K)
    gradient = (G_1 + ... + G_K) / (n_1 + ... + n_K)         the weighted mean: add all, divide once

The usual recipe lets every micro-batch take its own mean and divides by K:

    gradient = (G_1 / n_1 + ... + G_K / n_K) / K             the mean of means

Both are equal if all n_i are equal, and else they are not: an element of a small micro-batch counts
more. With losses 2 on 4 tokens and 1 on 60 tokens the first gives (8 + 60) / 64 = 1.0625, the
second (2 + 1) / 2 = 1.5.

Losses of this library therefore return S and n and never a mean, and backward gives G.
"""


def weighted_mean(micro_batches):
    """(loss, gradient) of the window from triples (loss_sum, weight, gradient).

    Exact for every split. ValueError if the weight of the window is 0: it saw
    nothing, so there is no mean.
    """
    loss_sum, weight_sum, gradient_sum = 0.0, 0.0, 0.0
    for loss, weight, gradient in micro_batches:
        loss_sum = loss_sum + float(loss)
        weight_sum = weight_sum + float(weight)
        gradient_sum = gradient_sum + gradient
    if weight_sum == 0:
        raise ValueError("weighted_mean: the weight of the window is 0, so it has no mean; "
                         "skip the update")
    return loss_sum / weight_sum, gradient_sum / weight_sum


def mean_of_means(micro_batches):
    """The same by the usual recipe, to compare. A micro-batch of weight 0 adds 0, and counts."""
    loss_sum, gradient_sum, k = 0.0, 0.0, 0
    for loss, weight, gradient in micro_batches:
        divisor = float(weight) if weight != 0 else 1.0
        loss_sum = loss_sum + float(loss) / divisor
        gradient_sum = gradient_sum + gradient / divisor
        k = k + 1
    return loss_sum / k, gradient_sum / k
