"""The network as a picture, in layers by depth. Its own small layout, so that no Graphviz is needed.

Boxes are nodes; in a large network a chain of nodes that only pass on their result is one box. Depth is the longest way from an input. The longest way
through the network is the spine, straight down; other boxes stand beside it, and edges that skip layers run in lanes beside those. A network
that is too deep for one column goes on in the next; what the next column still reads is named at its top.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from .._language import _, get_language, ngettext
from ..network import Network
from ..replay.texts import whole_number
from .picture import Picture
from .style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, SOFT, VERMILLION

FOLD_FROM, CHAIN = 16, 8                                     # nodes from which chains are folded, and most nodes of a box
LAYERS = 13                                                  # of a column, at most
WIDTH, LINE, GAP, LANE = 2.50, 0.20, 0.42, 0.38              # inches: a box, a line of text, between layers, between lanes
COLOURS = (                                                  # of a box, by the first of these that is in it
    (BLUE, ("linear", "conv2d", "conv_transpose2d", "embedding", "position", "multihead_attention", "lstm", "gru")),
    (GREEN, ("batch_norm", "ghost_batch_norm", "group_norm", "instance_norm2d", "layer_norm", "rms_norm")),
    (VERMILLION, ("cross_entropy_loss", "mse_loss", "l1_loss", "bce_with_logits_loss")),
    (ORANGE, ("relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "softmax")),
    (SKY, ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "upsample", "zero_pad2d", "flatten", "identity", "dropout", "dropout2d")),
)


@dataclass
class Box:
    """One or more nodes of a chain, or an input of the network."""

    names: list[str]
    kinds: list[str]
    inputs: list[int]                                        # boxes that it reads, each once
    shape: tuple | None                                      # of its output
    depth: int = 0
    column: int = 0
    x: float = 0.0                                           # middle, inches
    y: float = 0.0                                           # middle
    lines: list[str] = field(default_factory=list)

    @property
    def height(self) -> float:
        return LINE * len(self.lines) + 0.16


def graph(net: Network) -> Picture:
    """The nodes of a network, how they are connected, and the shape of what goes from one to the next, per sample.

    Args:
        net: from ``ga.plan``; of any size (chains are folded from 16 nodes on).
    """
    if not isinstance(net, Network):
        raise TypeError(f"net: got {type(net).__name__}, expected a network from ga.plan(...)")
    boxes = _boxes(net)
    skips = sum(boxes[i].depth + 1 < box.depth for box in boxes for i in box.inputs)
    title = ngettext("{n} node, {parameters} parameters", "{n} nodes, {parameters} parameters", len(net.nodes)).format(
        n=len(net.nodes), parameters=whole_number(net.params.size, get_language()))
    if skips:
        title += "; " + ngettext("{n} connection skips layers", "{n} connections skip layers", skips).format(n=skips)
    rows = [f"  {', '.join(node.inputs)} -> {node.name} ({node.kind})" + (f" {_shape(node.shape)}" if node.shape is not None else "") for node in net.nodes]
    return Picture(title, "\n".join(rows), lambda figure: _draw(figure, boxes))


def _shape(shape: tuple) -> str:
    return "×".join(map(str, shape)) or "1"


# ---- layout ----

def _boxes(net: Network) -> list[Box]:
    """Boxes in the order of the nodes, with depths."""
    boxes = [Box([name], ["input"], [], tuple(net._value_info[v][0])) for name, v in net._inputs.items()]
    at = {name: i for i, name in enumerate(net._inputs)}     # node or input -> box
    readers: dict[str, int] = {}
    for node in net.nodes:
        for name in set(node.inputs):
            readers[name] = readers.get(name, 0) + 1
    fold = len(net.nodes) >= FOLD_FROM
    for node in net.nodes:
        sources = [at[name] for name in dict.fromkeys(node.inputs)]
        last = boxes[sources[0]]
        loss = node.shape is None
        if fold and not loss and len(sources) == 1 and readers[node.inputs[0]] == 1 and last.kinds != ["input"] and len(last.kinds) < CHAIN:
            last.names.append(node.name)
            last.kinds.append(node.kind)
            last.shape = node.shape
            at[node.name] = sources[0]
            continue
        at[node.name] = len(boxes)
        boxes.append(Box([node.name], [node.kind], sources, node.shape))
    for box in boxes:
        box.depth = max((boxes[i].depth + 1 for i in box.inputs), default=0)
        box.lines = _lines(box)
    return boxes


def _lines(box: Box) -> list[str]:
    """What stands in the box: the module that its nodes have in common, then a line a node."""
    parts = [name.split(".") for name in box.names if "." in name]
    common = []
    for level in zip(*parts) if len(parts) > 1 else ():
        if len(set(level)) > 1:
            break
        common.append(level[0])
    prefix = ".".join(common) + "." if common else ""
    lines = [_cut(prefix.rstrip("."))] if prefix else []
    for name, kind in zip(box.names, box.kinds):
        own = name.removeprefix(prefix)
        plain = own == kind or own.rsplit("_", 1)[0] == kind and own.rsplit("_", 1)[-1].isdigit()
        lines.append(_cut(kind if plain else f"{own}  {kind}" if kind != "input" else _("input {name}").format(name=own)))
    return lines


def _cut(text: str, most: int = 30) -> str:
    return text if len(text) <= most else text[:most // 2 - 1] + "…" + text[-most // 2:]


def _spine(boxes: list[Box]) -> set[int]:
    """The longest way from an input to the last box."""
    way, i = [], max(range(len(boxes)), key=lambda i: (boxes[i].depth, i))
    while True:
        way.append(i)
        if not boxes[i].inputs:
            return set(way)
        i = max(boxes[i].inputs, key=lambda j: (boxes[j].depth, -j))


def _columns(boxes: list[Box]) -> None:
    """Cuts the depths into columns of about equal length where the fewest values cross."""
    depth = max(box.depth for box in boxes) + 1
    crossing = [len({i for box in boxes for i in box.inputs if boxes[i].depth < d <= box.depth}) for d in range(depth)]
    count = -(-depth // LAYERS)
    cuts, target = [], depth / count
    for c in range(1, count):
        near = [d for d in range(round(c * target) - 2, round(c * target) + 3) if (cuts[-1] if cuts else 0) < d < depth]
        cuts.append(min(near, key=lambda d: (crossing[d], abs(d - c * target))))
    for box in boxes:
        box.column = sum(box.depth >= cut for cut in cuts)


@dataclass
class Layout:
    """Boxes with places, edges (from, to, lane or None), the boxes that stand at the top of a later column again, and the size in inches."""

    boxes: list[Box]
    edges: list[tuple[Box, Box, float | None]]
    again: list[Box]
    width: float
    height: float


def _place(boxes: list[Box]) -> Layout:
    spine = _spine(boxes)
    _columns(boxes)
    edges, again = [], []
    left, deepest = 0.3, 0.0
    for column in range(max(box.column for box in boxes) + 1):
        own = [i for i, box in enumerate(boxes) if box.column == column]
        earlier = sorted({j for i in own for j in boxes[i].inputs if boxes[j].column < column})
        top = min(boxes[i].depth for i in own)
        ghosts = {j: Box(boxes[j].names, ["again"], [], boxes[j].shape, top - 1, column, lines=[_("from {name}").format(name=_cut(boxes[j].names[-1], 24))])
                  for j in earlier}
        again += ghosts.values()
        layers: dict[int, list[tuple[int, Box]]] = {}
        for i, box in [*ghosts.items(), *((i, boxes[i]) for i in own)]:
            layers.setdefault(box.depth, []).append((i, box))
        y, widest = 0.2, 1
        for depth in sorted(layers):
            row = sorted(layers[depth], key=lambda item: (item[0] not in spine, item[0]))
            for place, (i, box) in enumerate(row):
                box.x = left + WIDTH / 2 + place * (WIDTH + 0.25)
            height = max(box.height for _i, box in row)
            for _i, box in row:
                box.y = y + height / 2
            y += height + GAP
            widest = max(widest, len(row))
        deepest = max(deepest, y - GAP + 0.15)
        inner = [(ghosts.get(j, boxes[j]), boxes[i], i in spine and j in spine) for i in own for j in boxes[i].inputs]
        lanes: list[list[tuple[int, int]]] = []              # taken pieces of depth, by lane
        right = left
        for a, b, _straight in sorted(inner, key=lambda e: (e[1].depth - e[0].depth, e[0].depth)):
            if b.depth - a.depth == 1:
                edges.append((a, b, None))
                continue
            between = [box for row in (layers.get(d, ()) for d in range(a.depth + 1, b.depth)) for _i, box in row]
            edge = max(box.x for box in [*between, a, b]) + WIDTH / 2
            free = next((k for k, taken in enumerate(lanes) if all(b.depth <= first or last <= a.depth for first, last in taken)), len(lanes))
            if free == len(lanes):
                lanes.append([])
            lanes[free].append((a.depth, b.depth))
            edges.append((a, b, edge + LANE * (free + 0.75)))
            right = max(right, edges[-1][2])
        boxes_right = left + widest * (WIDTH + 0.25) - 0.25
        left = max(right, boxes_right) + 0.75
    return Layout(boxes, edges, again, left - 0.45, deepest)


# ---- drawing ----

def _colour(box: Box) -> str:
    if box.kinds[0] in ("add", "cat"):
        return PURPLE
    return next((colour for colour, kinds in COLOURS if not set(kinds).isdisjoint(box.kinds)), GREY)


def _draw(figure, boxes: list[Box]) -> None:
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
    from matplotlib.path import Path

    layout = _place(boxes)
    figure.set_size_inches(max(layout.width, 4.5), layout.height + 0.5)
    ax = figure.subplots()
    ax.set(xlim=(0, max(layout.width, 4.5)), ylim=(layout.height, 0))
    ax.set_axis_off()
    ax.grid(False)
    for box in [*layout.boxes, *layout.again]:
        again = box.kinds == ["again"]
        colour = GREY if again else _colour(box)
        ax.add_patch(FancyBboxPatch((box.x - WIDTH / 2, box.y - box.height / 2), WIDTH, box.height, boxstyle="round,pad=0,rounding_size=0.07",
                                    facecolor="white" if again else (*_rgb(colour), 0.13), edgecolor=colour, linewidth=1.3, linestyle=":" if again else "-"))
        for i, line in enumerate(box.lines):
            y = box.y - box.height / 2 + 0.08 + LINE * (i + 0.5)
            bold = i == 0 and (len(box.lines) > 1 or len(box.names) == 1)
            ax.text(box.x, y, line, ha="center", va="center", fontsize=9, fontweight="bold" if bold and not again else "normal",
                    color=SOFT if again else "black")
    labelled = set()
    for a, b, lane in sorted(layout.edges, key=lambda edge: edge[2] is not None):
        residual = lane is not None
        if residual:
            y0, y1, r = a.y + min(0.12, a.height / 4), b.y - min(0.12, b.height / 4), 0.12
            x0, x1 = a.x + WIDTH / 2, b.x + WIDTH / 2
            path = Path([(x0, y0), (lane - r, y0), (lane, y0), (lane, y0 + r), (lane, y1 - r), (lane, y1), (lane - r, y1), (x1, y1)],
                        [Path.MOVETO, Path.LINETO, Path.CURVE3, Path.CURVE3, Path.LINETO, Path.CURVE3, Path.CURVE3, Path.LINETO])
        else:
            x0, y0, x1, y1 = a.x, a.y + a.height / 2, b.x, b.y - b.height / 2
            if a.x != b.x:
                x1 += 0.35 * WIDTH * (1 if a.x > b.x else -1) * 0.5
            middle = (y0 + y1) / 2
            path = Path([(x0, y0), (x0, middle), (x1, middle), (x1, y1)], [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        ax.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>,head_width=2.4,head_length=4.2", color=PURPLE if residual else SOFT,
                                     linewidth=1.5 if residual else 1.1, shrinkA=0, shrinkB=0))
        if a.shape is None:
            continue
        key = (id(a), residual)
        if key in labelled:
            continue
        labelled.add(key)
        if residual:
            ax.text(lane + 0.03, (y0 + y1) / 2, _shape(a.shape), rotation=90, ha="left", va="center", fontsize=9, color=SOFT)
        else:
            left = a.x <= b.x                                # of the arrow, where no branch leaves
            ax.text(a.x + (-0.07 if left else 0.1), (y0 + y1) / 2 if a.x == b.x else y0 + 0.12, _shape(a.shape), ha="right" if left else "left", va="center",
                    fontsize=9, color=SOFT)


def _rgb(colour: str) -> tuple[float, float, float]:
    return tuple(int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
