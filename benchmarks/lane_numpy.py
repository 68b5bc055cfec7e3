"""NumPy by hand, for fully connected networks: arrays made once, products into them, gradients added up."""
import numpy as np
from models import MODELS, parameters, window


class Trainer:
    """variant: "hand"."""

    def __init__(self, model, micro_batch, threads, variant):
        m = MODELS[model]
        if m["kind"] != "mlp":
            raise SystemExit(f"NumPy by hand has no {m['kind']}")
        start, sizes = parameters(model), m["sizes"]
        self.m, self.t, count = m, 0, len(sizes) - 1
        self.w, self.b = [start[f"layers.{i}.weight"] for i in range(count)], [start[f"layers.{i}.bias"] for i in range(count)]
        self.all = self.w + self.b
        self.grads, self.first, self.second, self.work, self.root = ([np.zeros_like(p) for p in self.all] for _ in range(5))
        self.h = [None] + [np.empty((micro_batch, n), np.float32) for n in sizes[1:]]
        self.d = [None] + [np.empty((micro_batch, n), np.float32) for n in sizes[1:]]
        x, y = window(model)
        self.pieces = list(zip(np.split(x, m["window"] // micro_batch), np.split(y, m["window"] // micro_batch)))
        self.rows = np.arange(micro_batch)

    def update(self):
        n, layers, h, d = self.m["window"], len(self.w), self.h, self.d
        for g in self.grads:
            g.fill(0)
        total = 0.0
        for x, y in self.pieces:
            h[0] = x
            for i in range(layers):
                np.matmul(h[i], self.w[i].T, out=h[i + 1])
                h[i + 1] += self.b[i]
                if i + 1 < layers:
                    np.maximum(h[i + 1], 0, out=h[i + 1])
            z = h[layers]
            z -= z.max(1, keepdims=True)
            hit = z[self.rows, y]
            np.exp(z, out=d[layers])
            sums = d[layers].sum(1, keepdims=True)
            total += float((np.log(sums[:, 0]) - hit).sum()) / n
            d[layers] *= np.float32(1 / n) / sums
            d[layers][self.rows, y] -= np.float32(1 / n)
            for i in reversed(range(layers)):
                np.matmul(d[i + 1].T, h[i], out=self.work[i])
                self.grads[i] += self.work[i]
                self.grads[layers + i] += d[i + 1].sum(0)
                if i:
                    np.matmul(d[i + 1], self.w[i], out=d[i])
                    d[i] *= h[i] > 0
        self.step()
        return total

    def step(self):
        lr = self.m["lr"]
        self.t += 1
        for p, g, m, v, work, root in zip(self.all, self.grads, self.first, self.second, self.work, self.root):
            if self.m["optimizer"] == "sgd":
                g *= lr
                p -= g
                continue
            p *= 1 - lr * 0.01
            m *= 0.9
            np.multiply(g, 0.1, out=work)
            m += work
            g *= g
            g *= 0.001
            v *= 0.999
            v += g
            np.sqrt(v, out=root)
            root *= (1 - 0.999**self.t) ** -0.5
            root += 1e-8
            np.divide(m, root, out=work)
            work *= lr / (1 - 0.9**self.t)
            p -= work

    def about(self):
        return {"version": np.__version__}
