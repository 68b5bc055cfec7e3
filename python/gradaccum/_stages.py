"""The stages of a window: what is true after each, and what may come next. For explanations; the state machine itself is in C."""
from __future__ import annotations

from ._language import N_, _

TITLES = {
    "clear": N_("Clear"),
    "forward": N_("Forward"),
    "loss": N_("Loss"),
    "backward": N_("Backward"),
    "accumulate": N_("Accumulate"),
    "normalize": N_("Normalize"),
    "clip": N_("Clip"),
    "update": N_("Update"),
}
NEXT = {
    "clear": ("forward",),
    "forward": ("loss", "forward"),
    "loss": ("backward", "forward"),
    "backward": ("accumulate",),
    "accumulate": ("forward", "normalize"),
    "normalize": ("clip", "step"),
    "clip": ("step",),
    "update": ("clear",),
}
MEANINGS = {
    "clear": N_("The window is empty. It begins with the forward pass of its first micro-batch."),
    "forward": N_("The activations and the output of the micro-batch are there. Its loss comes next."),
    "loss": N_("The loss of the micro-batch is there, as a sum. Backward turns it into gradients."),
    "backward": N_("The gradient of the micro-batch is there. The window takes it in with accumulate; without a window the optimizer may step."),
    "accumulate": N_("The window holds all micro-batches so far. Another one may come, or normalize divides the sum."),
    "normalize": N_("The gradient of the window is divided by its weight. It may be clipped; then the optimizer steps."),
    "clip": N_("The norm of the gradient is within its limit. The optimizer steps next."),
    "update": N_("The parameters have moved. The window must be cleared before the next one begins."),
}
ORDER = N_("The order of a window: clear, then forward, loss, backward and accumulate for each micro-batch, then normalize, clip if wanted, step.")


def following(stage: str, window: bool = True) -> tuple[str, ...]:
    """The calls that are allowed after this stage, with or without a window on the network."""
    return ("forward", "step") if stage == "backward" and not window else NEXT[stage]


def explain(stage: str) -> str:
    """What is true after this stage, and the order of all, each on an indented line."""
    return f"  {_(MEANINGS[stage])}\n  {_(ORDER)}"
