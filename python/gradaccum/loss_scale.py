"""A loss scale that finds its own size, for numbers of few bits (Micikevicius et al. 2018, arXiv:1710.03740)."""
from __future__ import annotations

import math

from ._checks import whole


class DynamicLossScale:
    """Grows until gradients overflow, then steps back; names and rule of torch.amp.GradScaler, but with whole windows.

    The scale is the same for all micro-batches of a window, since their gradients are added, and is taken out once, at the boundary. A window
    whose gradient has NaN or infinity is skipped and shrinks the scale; ``growth_interval`` updates in a row let it grow. Windows without weight
    do not count.

    Args:
        init_scale: to begin with.
        growth_factor, backoff_factor: above 1; above 0 and below 1.
        growth_interval: updates without overflow until it grows.
    """

    def __init__(self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000):
        if not 0 < init_scale < math.inf:
            raise ValueError(f"init_scale={init_scale}: expected a finite number above 0")
        if not 1 < growth_factor < math.inf:
            raise ValueError(f"growth_factor={growth_factor}: expected a number above 1")
        if not 0 < backoff_factor < 1:
            raise ValueError(f"backoff_factor={backoff_factor}: expected a number between 0 and 1")
        self.scale, self.growth_factor, self.backoff_factor = float(init_scale), float(growth_factor), float(backoff_factor)
        self.growth_interval, self.growth_tracker = whole("growth_interval", growth_interval), 0

    def __float__(self) -> float:
        return self.scale

    def update(self, overflow: bool) -> None:
        """After a window: whether its gradient had NaN or infinity. The scale stays a finite number above 0."""
        if overflow:
            self.scale, self.growth_tracker = max(self.scale * self.backoff_factor, 5e-324), 0
            return
        self.growth_tracker += 1
        if self.growth_tracker == self.growth_interval:
            grown = self.scale * self.growth_factor
            self.scale, self.growth_tracker = grown if math.isfinite(grown) else self.scale, 0

    def state_dict(self) -> dict:
        """The scale and the updates since it last changed."""
        return {"scale": self.scale, "growth_tracker": self.growth_tracker}

    def load_state_dict(self, state: dict) -> None:
        """Restores what ``state_dict`` gave."""
        scale, tracker = float(state["scale"]), whole("growth_tracker", state["growth_tracker"], 0)
        if not 0 < scale < math.inf:
            raise ValueError(f"scale={scale}: expected a finite number above 0")
        self.scale, self.growth_tracker = scale, tracker

    def __repr__(self):
        return f"DynamicLossScale: {self.scale:g}, {self.growth_tracker} of {self.growth_interval} updates until it grows"
