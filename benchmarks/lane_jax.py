"""JAX. Variants: scan (one jit over the window), unroll (the same, micro-batches unrolled), loop (a jitted micro-step, gradients donated from call to call).

scan is not run with convolutions, which XLA makes slow inside a loop on CPUs.
"""
import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from models import MODELS, parameters, window


def dense(p, at, x):
    return x @ p[f"{at}.weight"] + p[f"{at}.bias"]


def mlp(m, p, s, x):
    for i in range(len(m["sizes"]) - 1):
        x = dense(p, f"layers.{i}", x if i == 0 else jax.nn.relu(x))
    return x, s


def conv(p, at, x, stride=1):
    w = p[f"{at}.weight"]
    return lax.conv_general_dilated(x, w, (stride, stride), [(w.shape[0] // 2,) * 2] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def cnn(m, p, s, x):
    for i in range(4):
        x = jax.nn.relu(conv(p, f"convs.{i}", x) + p[f"convs.{i}.bias"])
        if i % 2:
            n, h, w, c = x.shape
            x = x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
    return dense(p, "fc", x.reshape(len(x), -1)), s


def resnet(m, p, s, x):
    s = dict(s)

    def bn(at, x):
        mean, var, n = x.mean((0, 1, 2)), x.var((0, 1, 2)), x.size // x.shape[-1]
        s[at] = (0.9 * s[at][0] + 0.1 * lax.stop_gradient(mean), 0.9 * s[at][1] + 0.1 * lax.stop_gradient(var) * n / (n - 1))
        return (x - mean) * (lax.rsqrt(var + 1e-5) * p[f"{at}.weight"]) + p[f"{at}.bias"]

    x = jax.nn.relu(bn("bn1", conv(p, "conv1", x)))
    for stage in (1, 2, 3):
        for block in range(3):
            at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            h = bn(f"{at}.bn2", conv(p, f"{at}.conv2", jax.nn.relu(bn(f"{at}.bn1", conv(p, f"{at}.conv1", x, stride)))))
            x = jax.nn.relu(h + (x if stride == 1 else bn(f"{at}.downsample.1", conv(p, f"{at}.downsample.0", x, stride))))
    return dense(p, "fc", x.mean((1, 2))), s


def gpt(m, p, s, tokens):
    b, t = tokens.shape
    seen = jnp.tril(jnp.ones((t, t), bool))

    def norm(at, x):
        x = x - x.mean(-1, keepdims=True)
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p[f"{at}.weight"] + p[f"{at}.bias"]

    x = p["wte.weight"][tokens] + p["wpe.weight"]
    for i in range(m["layers"]):
        at = f"h.{i}"
        q, k, v = (a.reshape(b, t, m["heads"], -1) for a in jnp.split(dense(p, f"{at}.attn.c_attn", norm(f"{at}.ln_1", x)), 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(seen, scores, -1e30), -1), v)
        x = x + dense(p, f"{at}.attn.c_proj", mixed.reshape(x.shape))
        x = x + dense(p, f"{at}.mlp.c_proj", jax.nn.gelu(dense(p, f"{at}.mlp.c_fc", norm(f"{at}.ln_2", x)), approximate=True))
    return (norm("ln_f", x) @ p["wte.weight"].T).reshape(-1, m["vocabulary"]), s


def to_jax(m, key, a):
    """PyTorch's layout to the one JAX is fast with: dense (in, out), convolution (h, w, in, out), the CNN's last layer for channels-last images."""
    if a.ndim == 4:
        return a.transpose(2, 3, 1, 0)
    if key == "fc.weight" and m["kind"] == "cnn":
        side = m["size"] // 4
        return a.reshape(-1, 64, side, side).transpose(2, 3, 1, 0).reshape(-1, len(a))
    return a.T if a.ndim == 2 and key not in ("wte.weight", "wpe.weight") else a


class Trainer:
    def __init__(self, model, micro_batch, threads, variant):
        m = MODELS[model]
        net = {"mlp": mlp, "cnn": cnn, "resnet": resnet, "gpt": gpt}[m["kind"]]
        steps, lr, adam = m["window"] // micro_batch, m["lr"], m["optimizer"] == "adamw"
        self.p = {k: jnp.array(np.ascontiguousarray(to_jax(m, k, a))) for k, a in parameters(model).items()}
        self.opt = (*({k: jnp.zeros_like(a) for k, a in self.p.items()} for _ in range(2)), jnp.zeros((), jnp.int32))
        norms = [k[:-5] for k in self.p if m["kind"] == "resnet" and k.endswith(".bias") and k != "fc.bias"]
        self.state = {k: (jnp.zeros_like(self.p[f"{k}.bias"]), jnp.ones_like(self.p[f"{k}.bias"])) for k in norms}
        x, y = window(model)
        x = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
        self.x = jnp.array(np.ascontiguousarray(x.astype(np.int32) if x.dtype.kind == "i" else x).reshape(steps, micro_batch, *x.shape[1:]))
        self.y = jnp.array(y.astype(np.int32).reshape(steps, -1))

        def loss(p, s, x, y):
            z, s = net(m, p, s, x)
            return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0]).mean() / steps, s

        gradient = jax.value_and_grad(loss, has_aux=True)

        def micro_step(carry, p, x, y):
            g, s, total = carry
            (value, s), new = gradient(p, s, x, y)
            return {k: g[k] + new[k] for k in g}, s, total + value

        def apply(p, opt, g):
            if not adam:
                return {k: p[k] - lr * g[k] for k in p}, opt
            first, second, t = opt
            t += 1
            first = {k: 0.9 * first[k] + 0.1 * g[k] for k in p}
            second = {k: 0.999 * second[k] + 0.001 * g[k] * g[k] for k in p}
            c1, c2 = 1 - 0.9 ** t.astype(jnp.float32), 1 - 0.999 ** t.astype(jnp.float32)
            return {k: p[k] * (1 - lr * 0.01) - lr / c1 * first[k] / (jnp.sqrt(second[k] / c2) + 1e-8) for k in p}, (first, second, t)

        def whole(p, opt, s, xs, ys):
            if steps == 1:
                (total, s), g = gradient(p, s, xs[0], ys[0])
            else:
                start = ({k: jnp.zeros_like(a) for k, a in p.items()}, s, jnp.zeros(()))
                unroll = steps if variant == "unroll" else 1
                (g, s, total), _ = lax.scan(lambda carry, xy: (micro_step(carry, p, *xy), None), start, (xs, ys), unroll=unroll)
            p, opt = apply(p, opt, g)
            return p, opt, s, total

        self.whole = None if variant == "loop" else jax.jit(whole, donate_argnums=(0, 1, 2))
        self.micro_step, self.apply = jax.jit(micro_step, donate_argnums=0), jax.jit(apply, donate_argnums=(0, 1, 2))
        self.pieces = [(self.x[i], self.y[i]) for i in range(steps)]

    def update(self):
        if self.whole is not None:
            self.p, self.opt, self.state, total = self.whole(self.p, self.opt, self.state, self.x, self.y)
            return float(total)
        carry = ({k: jnp.zeros_like(a) for k, a in self.p.items()}, self.state, jnp.zeros(()))
        for x, y in self.pieces:
            carry = self.micro_step(carry, self.p, x, y)
        g, self.state, total = carry
        self.p, self.opt = self.apply(self.p, self.opt, g)
        jax.block_until_ready(self.p)
        return float(total)

    def about(self):
        return {"version": jax.__version__}
