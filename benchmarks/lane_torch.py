"""PyTorch. Variants: user (as most people write it), tuned (threads set, channels_last for images, fused optimizer), compile (tuned and torch.compile)."""
import torch
from models import MODELS, parameters, window
from torch import nn
from torch.nn import functional as F


class MLP(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(m["sizes"], m["sizes"][1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class CNN(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip((m["channels"], 32, 32, 64), (32, 32, 64, 64)))
        self.fc = nn.Linear(64 * (m["size"] // 4) ** 2, 10)

    def forward(self, x):
        for i, conv in enumerate(self.convs):
            x = F.relu(conv(x))
            if i % 2:
                x = F.max_pool2d(x, 2)
        return self.fc(x.flatten(1))


class BasicBlock(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.downsample = None
        if inputs != width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        h = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(h + (x if self.downsample is None else self.downsample(x)))


class ResNet20(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        for i, (a, b) in enumerate(((16, 16), (16, 32), (32, 64)), start=1):
            blocks = [BasicBlock(a, b, 1 if i == 1 else 2), BasicBlock(b, b, 1), BasicBlock(b, b, 1)]
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.fc(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads = m["heads"]
        self.c_attn, self.c_proj = nn.Linear(m["width"], 3 * m["width"]), nn.Linear(m["width"], m["width"])

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (a.view(b, t, self.heads, -1).transpose(1, 2) for a in self.c_attn(x).split(c, dim=2))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        c = m["width"]
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(c), Attention(m), nn.LayerNorm(c)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(c, 4 * c), "c_proj": nn.Linear(4 * c, c)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(m["vocabulary"], m["width"]), nn.Embedding(m["steps"], m["width"])
        self.h, self.ln_f = nn.ModuleList(Block(m) for _ in range(m["layers"])), nn.LayerNorm(m["width"])

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)


class Trainer:
    def __init__(self, model, micro_batch, threads, variant):
        m = MODELS[model]
        if variant != "user":
            torch.set_num_threads(threads)
        self.net = {"mlp": MLP, "cnn": CNN, "resnet": ResNet20, "gpt": GPT}[m["kind"]](m)
        self.net.load_state_dict({k: torch.from_numpy(a) for k, a in parameters(model).items()}, strict=False)
        x, y = (torch.from_numpy(a) for a in window(model))
        if variant != "user" and x.ndim == 4:
            self.net, x = self.net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
        self.steps = m["window"] // micro_batch
        self.pieces = list(zip(x.split(micro_batch), y.flatten().split(micro_batch * y[0].numel())))
        extra = {"fused": True} if variant != "user" else {}
        kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[m["optimizer"]]
        self.opt = kind(self.net.parameters(), lr=m["lr"], **({"weight_decay": 0.01} if m["optimizer"] == "adamw" else {}), **extra)
        self.loss = lambda x, y: F.cross_entropy(self.net(x), y)
        if variant == "compile":
            self.loss = torch.compile(self.loss, dynamic=False)

    def update(self):
        self.opt.zero_grad(set_to_none=True)
        total = 0.0
        for x, y in self.pieces:
            loss = self.loss(x, y) / self.steps
            loss.backward()
            total += loss.item()
        self.opt.step()
        return total

    def about(self):
        return {"version": torch.__version__, "kernels": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads()}
