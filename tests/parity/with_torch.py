"""The runs of ``cases`` in PyTorch: sums of losses, divided once by the weight of the window."""
import numpy as np
import torch
from cases import LOSSES, OPTIMIZERS, batches, weights


def run(optimizer, loss, steps=1):
    """(final parameters flat, loss of each update), float32."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    model.load_state_dict({k: torch.tensor(v) for k, v in weights().items()})
    name, options = OPTIMIZERS[optimizer]
    opt = getattr(torch.optim, name)(model.parameters(), **options)
    name, options = LOSSES[loss]
    options = {k: torch.tensor(v) if isinstance(v, list) else v for k, v in options.items()}
    mean, total = getattr(torch.nn, name)(**options), getattr(torch.nn, name)(reduction="sum", **options)
    losses = []
    for x, y in batches(loss):
        x, y = torch.tensor(x), torch.tensor(y)
        weight = total(model(x), y).item() / mean(model(x), y).item()
        opt.zero_grad()
        summed = 0.0
        for a, b in zip(x.chunk(steps), y.chunk(steps)):
            part = total(model(a), b)
            (part / weight).backward()
            summed += part.item()
        losses.append(summed / weight)
        opt.step()
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()]), np.array(losses)
