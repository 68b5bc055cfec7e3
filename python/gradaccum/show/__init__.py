"""Cards and pictures. Cards need nothing; pictures need matplotlib (``pip install 'gradaccum[show]'``), their texts do not."""
from .cards import card
from .network_graph import graph
from .memory import memory_timeline
from .picture import Picture
from .training import losses, noise_against_batch, time_against_steps
from .windows import against_full_batch, window

__all__ = ["Picture", "against_full_batch", "card", "graph", "losses", "memory_timeline", "noise_against_batch", "time_against_steps", "window"]
