"""Colours and type of all pictures. The colours can be told apart by colour-blind readers (Okabe, Ito 2008)."""
from __future__ import annotations

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#000000")
BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, GREY, BLACK = COLOURS
YELLOW, SOFT, FAINT = "#f0e442", "#555555", "#d9d9d9"
KIND_COLOURS = {                                             # one colour for a kind of memory, in every picture and card
    "parameters": BLUE,
    "gradient_buffer": VERMILLION,
    "micro_batch_gradient": ORANGE,
    "optimizer_state": PURPLE,
    "activations": GREEN,
    "activation_gradients": SKY,
    "layer_state": YELLOW,
    "packed_weights": GREY,
    "workspace": "#c9c9c9",
    "ema": BLACK,
}


def style() -> dict:
    """Settings for ``matplotlib.rc_context``: plain axes, a bold message at the left as title, 10 point text."""
    return {
        "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 10, "axes.labelcolor": SOFT,
        "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": SOFT, "axes.axisbelow": True, "axes.grid": True,
        "axes.grid.axis": "y", "grid.color": FAINT, "grid.linewidth": 0.6, "xtick.color": SOFT, "ytick.color": SOFT, "legend.frameon": False,
        "legend.fontsize": 9, "figure.facecolor": "white", "savefig.facecolor": "white", "figure.dpi": 110, "lines.linewidth": 1.8,
        "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
    }
