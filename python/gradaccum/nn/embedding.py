"""Vectors for tokens and for positions."""
from __future__ import annotations

from .._checks import whole
from .module import Layer, NeedsIntegers, Symbol
from .parameter import Parameter, normal


def require_integers(symbol: Symbol, who: str) -> None:
    """A network input becomes one of integers (the network is traced again); anything else cannot be."""
    if symbol._integer:
        return
    if symbol._producer >= 0:
        raise ValueError(f"{who}: the input comes from a layer and holds real numbers; tokens and lengths are inputs of the network")
    raise NeedsIntegers(symbol._index)


class Embedding(Layer):
    """The row of a table for each token.

    Args:
        num_embeddings, embedding_dim: rows (the vocabulary) and their length.
        padding_idx: the row of this token starts as zeros and gets no gradient; negative numbers count from the end.

    Input: integers () or (T,) per sample, an input of the network, 0 to num_embeddings - 1 (IndexError otherwise). Output: (embedding_dim,) or
    (T, embedding_dim). Parameter: ``weight`` (num_embeddings, embedding_dim), standard normal.
    """

    kind = "embedding"
    parameter_names = ("weight",)

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None):
        super().__init__()
        self.num_embeddings, self.embedding_dim = whole("Embedding: num_embeddings", num_embeddings), whole("Embedding: embedding_dim", embedding_dim)
        if padding_idx is not None:
            if not -num_embeddings <= whole("Embedding: padding_idx", padding_idx, -num_embeddings) < num_embeddings:
                raise ValueError(f"Embedding: padding_idx={padding_idx}, expected a token of a vocabulary of {num_embeddings}")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.weight = Parameter((num_embeddings, embedding_dim), self._init)

    def _init(self, rng, shape):
        table = rng.normal(0.0, 1.0, shape)
        if self.padding_idx is not None:
            table[self.padding_idx] = 0
        return table

    def options(self):
        return {"num_embeddings": self.num_embeddings, "embedding_dim": self.embedding_dim,
                "padding_idx": -1 if self.padding_idx is None else self.padding_idx}

    def check(self, x: Symbol):
        require_integers(x, repr(self))

    def extra_repr(self):
        return f"{self.num_embeddings}, {self.embedding_dim}" + ("" if self.padding_idx is None else f", padding_idx={self.padding_idx}")


class LearnedPositions(Layer):
    """x + weight[0:T]: a learned vector is added at each place of a sequence (T, C), T at most ``max_len``.

    Parameter: ``weight`` (max_len, features), normal with standard deviation 0.02.
    """

    kind = "position"
    parameter_names = ("weight",)

    def __init__(self, max_len: int, features: int):
        super().__init__()
        self.max_len, self.features = whole("LearnedPositions: max_len", max_len), whole("LearnedPositions: features", features)
        self.weight = Parameter((max_len, features), normal(0.02))

    def options(self):
        return {"max_len": self.max_len}

    def check(self, x: Symbol):
        if len(x.shape) == 2 and x.shape[1] != self.features:
            raise ValueError(f"{self!r}: the input has shape {x.shape} per sample, so features should be {x.shape[1]}")

    def extra_repr(self):
        return f"{self.max_len}, {self.features}"
