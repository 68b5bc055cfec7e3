"""``python -m gradaccum text``: a small character GPT on English and Vietnamese names, in micro-batches with unequal numbers of characters.

Each window has 32 names, sorted by length and cut into 4 micro-batches of 8, so the micro-batches hold different numbers of tokens. Three runs
from the same start: the whole window at once without a memory limit; 4 x 8 under the limit, divided once by the window's tokens; and 4 x 8 with the
mean of means, the divisor that language model trainers used until October 2024.
"""
from __future__ import annotations

import time

import numpy as np

from . import Accumulator, BudgetError, models, nn, optim, plan
from .data import CharTokenizer, batches, names, pack
from .memory import format_bytes

LIMIT, WINDOW, MICRO_BATCH = "8 MiB", 32, 8


def make(tokenizer: CharTokenizer, block: int, micro_batch: int, limit: str | None, reduction: str, seed: int):
    """A GPT of two blocks over characters, AdamW, and its window."""
    model = models.gpt(len(tokenizer), block, n_layer=2, n_head=4, n_embd=64, dropout=0.1)
    net = plan(model, input_shape=(block,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, memory_limit=limit, seed=seed)
    return net, Accumulator(net, optim.AdamW(net, lr=3e-3, weight_decay=0.01), reduction=reduction, max_grad_norm=1.0)


def window(net, acc, sequences) -> None:
    """One update by hand: as many micro-batches as the network's size needs, each padded to its own longest name."""
    acc.begin()
    for first in range(0, len(sequences), net.micro_batch):
        part = sequences[first:first + net.micro_batch]
        (micro,) = pack(part, "next", max_tokens=len(part) * max(map(len, part)), sort=False)
        net.forward(micro.tokens)
        net.loss(micro.targets)
        net.backward()
        acc.accumulate()
    acc.normalize()
    acc.clip()
    acc.optimizer.step()
    acc.clear()


def encode(tokenizer: CharTokenizer, text: list[str], language, which) -> list[np.ndarray]:
    """"en:shark" with marks at both ends, for each name in ``which``."""
    return [tokenizer.encode(f"{('en', 'vi')[language[i]]}:{text[i]}", bos=True, eos=True) for i in which]


def sample(net, tokenizer: CharTokenizer, prompt: str, rng, block: int, temperature: float = 0.7) -> str:
    """Continues ``prompt`` character by character until the end mark."""
    tokens = list(tokenizer.encode(prompt, bos=True))
    while len(tokens) < block:
        logits = net.predict(np.array([tokens]))[0, -1].astype(np.float64) / temperature
        logits[[tokenizer.pad, tokenizer.bos]] = -np.inf
        p = np.exp(logits - logits.max())
        tokens.append(int(rng.choice(len(p), p=p / p.sum())))
        if tokens[-1] == tokenizer.eos:
            break
    return tokenizer.decode(tokens)


def test_perplexity(net, sequences) -> float:
    """exp of the mean loss per character of held-out names."""
    (everything,) = pack(sequences, "next", max_tokens=len(sequences) * max(map(len, sequences)), sort=False)
    return float(np.exp(net.evaluate(everything.tokens, everything.targets)))


def run(updates: int = 300, seed: int = 0) -> int:
    """Prints everything; returns 0, or 1 if the bits of 1 x 32 and 4 x 8 differ."""
    data = names()
    tokenizer = CharTokenizer(f"{language}:{text}" for language in data.languages for text in data.text)
    train, test = (encode(tokenizer, data.text, data.language, which) for which in (data.train, data.test))
    block = max(map(len, train + test))
    print(f"Data: {len(train):,} names to train, {len(test):,} to test, English and Vietnamese (Unicode CLDR); {len(tokenizer)} characters, "
          f"{min(map(len, train)) - 1} to {block - 1} tokens a name")
    print(f"\nThe card: {LIMIT}. The window of {WINDOW} names at once:")
    try:
        make(tokenizer, block, WINDOW, LIMIT, "mean", seed)
        print("  fits, which it should not")
        return 1
    except BudgetError as error:
        print("  BudgetError: " + str(error).replace("\n", "\n  "))

    runs = {
        "1 x 32, tokens": make(tokenizer, block, WINDOW, None, "mean", seed),
        "4 x 8, tokens": make(tokenizer, block, MICRO_BATCH, LIMIT, "mean", seed),
        "4 x 8, means": make(tokenizer, block, MICRO_BATCH, LIMIT, "mean_of_means", seed),
    }
    reference = runs["1 x 32, tokens"][0]
    print(f"\n  {'':<6} | " + " | ".join(f"{name:^31}" for name in runs))
    print(f"  {'update':>6} | " + " | ".join(f"{'loss':>8} {'grad norm':>10} {'distance':>11}" for _ in runs))
    same, done, epoch, seconds = True, 0, 0, dict.fromkeys(runs, 0.0)
    while done < updates:
        for x, _ in batches(np.arange(len(train)), np.arange(len(train)), WINDOW, seed=seed, epoch=epoch, drop_last=True):
            sequences = sorted((train[i] for i in x), key=len)
            for name, (net, acc) in runs.items():
                start = time.perf_counter()
                window(net, acc, sequences)
                seconds[name] += time.perf_counter() - start
            done += 1
            left, right = (runs[name][1].last_update for name in ("1 x 32, tokens", "4 x 8, tokens"))
            same &= (left.loss, left.grad_norm) == (right.loss, right.grad_norm)
            if done == 1 or done % max(updates // 6, 1) == 0 or done == updates:
                cells = []
                for net, acc in runs.values():
                    distance = float(np.linalg.norm(net.params.astype(np.float64) - reference.params))
                    logged = acc.last_update.loss if acc.reduction == "mean" else float(np.mean(acc.last_update.micro_losses))
                    cells.append(f"{logged:8.4f} {acc.last_update.grad_norm:10.4f} {distance:11.6f}")
                print(f"  {done:>6} | " + " | ".join(cells))
            if done == updates:
                break
        epoch += 1
    net = runs["4 x 8, tokens"][0]
    same &= bool(np.array_equal(reference.params, net.params))
    print(f"\nsame bits, 1 x 32 and 4 x 8 divided by tokens: {'yes' if same else 'NO'} ({net.params.size:,} parameters, loss and norm of every update)")
    print("The mean of means logs another loss, has another gradient norm, and walks away from the full batch.")
    acc = runs["4 x 8, tokens"][1]
    print(f"\n  {'':<16} {'bytes':>10} {'tokens/s':>9} {'test perplexity':>16}")
    for name, (net, acc) in runs.items():
        print(f"  {name:<16} {format_bytes(net.memory.bytes()):>10} {acc.tokens / seconds[name]:9,.0f} {test_perplexity(net, test):16.3f}")
    rng = np.random.default_rng(seed)
    net = runs["4 x 8, tokens"][0]
    print("\nNames that it makes up:")
    for language in data.languages:
        print(f"  {language}: " + ", ".join(sample(net, tokenizer, f"{language}:", rng, block)[3:] for _ in range(6)))
    return 0 if same else 1
