"""Checkers of lessons 5, 6, 7, 9 and 10: memory, time, learning rate, the log, and the same loop in PyTorch."""
from __future__ import annotations

from .. import get_num_threads, models, nn, plan, set_num_threads
from .result import NotDone, call, exercise, near, numbers, require

# Lesson 6: (accumulation_steps, seconds per sample) of one machine, measured on a window of 128.
TIMES = [(1, 100e-6), (2, 103e-6), (4, 108e-6), (8, 117e-6), (16, 134e-6), (32, 171e-6), (64, 248e-6)]
# Lesson 9: what a team measured. Bytes in MiB, seconds per epoch, all with the same effective batch of 64.
SETTINGS = [
    {"micro_batch": 64, "accumulation_steps": 1, "mib": 16.8, "seconds": 10.0},
    {"micro_batch": 32, "accumulation_steps": 2, "mib": 8.6, "seconds": 10.2},
    {"micro_batch": 16, "accumulation_steps": 4, "mib": 4.6, "seconds": 10.6},
    {"micro_batch": 8, "accumulation_steps": 8, "mib": 2.5, "seconds": 11.4},
    {"micro_batch": 4, "accumulation_steps": 16, "mib": 1.5, "seconds": 13.1},
]


def cnn_report():
    """Bytes of the convolutional network of lesson 5, on two threads as there (each thread has a workspace)."""
    threads = get_num_threads()
    set_num_threads(2)
    try:
        return plan(models.cnn(), input_shape=(1, 28, 28), loss=nn.CrossEntropyLoss(), micro_batch=1).memory
    finally:
        set_num_threads(threads)


# ---- lesson 5 ----

@exercise("largest_batch")
def check_largest_batch(answer):
    """``largest_batch``: the largest micro-batch of ``ga.models.cnn()`` on 28 x 28 images that fits 6 MiB."""
    memory, n = cnn_report(), numbers(answer, (), "largest_batch")
    require(n == int(n) and n >= 1, f"{n:g} is not a number of images.")
    limit, n = 6 * 2**20, int(n)
    require(memory.bytes(n) <= limit, f"{n} images need {memory.bytes(n) / 2**20:.2f} MiB, more than 6 MiB.")
    require(memory.bytes(n + 1) > limit, f"{n} images fit, and so do {n + 1}: try more.")
    return f"{n} images need {memory.bytes(n) / 2**20:.2f} MiB, one more would not fit."


@exercise("best_split")
def check_best_split(answer):
    """``best_split``: (micro_batch, accumulation_steps) for 96 images per update under 4 MiB, with as few micro-batches as possible."""
    m, k = (int(n) for n in numbers(answer, (2,), "best_split"))
    memory = cnn_report()
    require(m >= 1 and k >= 1 and m * k == 96, f"{m} x {k} is {m * k} images per update, not 96.")
    require(memory.bytes(m) <= 4 * 2**20, f"A micro-batch of {m} needs {memory.bytes(m) / 2**20:.2f} MiB, more than 4 MiB.")
    better = min(steps for steps in range(1, 97) if 96 % steps == 0 and memory.bytes(96 // steps) <= 4 * 2**20)
    require(k == better, f"{m} x {k} fits, but fewer and larger micro-batches fit too.")
    return f"{m} x {k} = 96: the largest equal pieces that fit."


# ---- lesson 6 ----

@exercise("first_costly")
def check_first_costly(answer):
    """``first_costly(times)``: the smallest accumulation_steps whose time per sample is more than 20 % above that of 1."""
    def run(rows):
        return float(numbers(call(answer, rows), (), "what first_costly returned"))

    got = run(TIMES)
    require(got != 8, "8 costs 17 % more, which is not above 20 %.")
    require(got != 32 and got != 64, f"{got:g} is costly too, but not the first one.")
    require(got == 16, f"For the table of the lesson you return {got:g}; the first above 1.2 x 100 µs is 16.")
    other = [(1, 1.0), (2, 1.3), (4, 1.1), (8, 2.0)]
    require(run(other) == 2, f"For {other} it is 2; compare with the row of accumulation_steps 1, not with the row before.")
    return "Above 1.2 times the time of 1."


@exercise("extra_time")
def check_extra_time(answer):
    """``extra_time``: seconds by which an epoch of 6,400 images grows when 64 takes 0.40 s as 1 x 64 and 0.44 s as 4 x 16."""
    n = numbers(answer, (), "extra_time")
    require(not near(n, 0.04), "0.04 s is for one update; an epoch has 100.")
    require(not near(n, 44), "44 s is the whole epoch; the question is how much longer than before.")
    require(not near(n, 16), "As 4 x 16 there are still 100 updates an epoch, not 400.")
    require(near(n, 4, 1e-6), f"{n:g}: 6,400 / 64 updates, each 0.04 s longer.")
    return "100 updates, 0.04 s each: 4 s on 40, that is 10 %."


# ---- lesson 7 ----

@exercise("choose_rate")
def check_choose_rate(answer):
    """``choose_rate``: three learning rates; see the stub in lesson 7."""
    right = {"64 as 4 x 16": (0.1, "the effective batch is the same 64, so nothing changes."),
             "SGD, 16 to 4 x 16": (0.4, "four times as many samples per update: linear scaling for SGD gives 4 x 0.1."),
             "Adam, 16 to 4 x 16": (0.002, "Adam's steps do not grow with the gradient; the square root rule gives 2 x 0.001.")}
    require(isinstance(answer, dict) and set(answer) == set(right), f"Keep the three questions {', '.join(right)}.")
    if any(rate is ... for rate in answer.values()):
        raise NotDone
    for question, (rate, why) in right.items():
        given = numbers(answer[question], (), question)
        require(near(given, rate, 1e-9), f"{question}: {given:g} is not the usual starting point; {why.split(':')[0].rstrip('.')}.")
    return "These are starting points: the last word has a run."


@exercise("noise_at_128")
def check_noise_at_128(answer):
    """``noise_at_128``: noise over signal for batches of 128, when it is 2.4 for batches of 8."""
    n = numbers(answer, (), "noise_at_128")
    require(not near(n, 2.4 / 16), "Noise shrinks with the square root of the batch: 16 times the samples, a quarter of the noise.")
    require(not near(n, 9.6), "More samples make the noise smaller, not larger.")
    require(near(n, 0.6, 0.02), f"{n:g}: from 8 to 128 is a factor of 16 = 4 x 4; each factor of 4 halves the noise.")
    return "Halved twice: 2.4, 1.2, 0.6."


# ---- lesson 9 ----

@exercise("x_axis")
def check_x_axis(answer):
    """``x_axis(record)``: the number of a log record that makes runs with different accumulation_steps comparable."""
    record = {"micro_step": 40, "update": 10, "samples": 640, "loss": 1.0}
    got = float(numbers(call(answer, record), (), "what x_axis returned"))
    require(got != 40, "micro_step grows four times as fast with accumulation_steps=4: the curve is stretched.")
    require(got != 10, "update compares runs only if their effective batch is the same; a run with 16 samples per update would look four times as long.")
    require(got != 1, "That is the loss: the y axis.")
    require(got == 640, f"For {record} you return {got:g}; which number counts what the model has seen?")
    return "Samples seen: the same meaning in every run."


@exercise("choose_setting")
def check_choose_setting(answer):
    """``choose_setting(settings, limit)``: the row with the shortest time among those that fit ``limit`` MiB; None if none does."""
    def run(limit):
        got = call(answer, SETTINGS, limit)
        require(got is None or isinstance(got, dict), f"expected one row (a dict), or None, got {got!r}")
        return got

    got = run(8.0)
    require(got is not None, "For 8 MiB something fits.")
    require(got.get("mib", 99) <= 8.0, f"micro_batch {got.get('micro_batch')} needs {got.get('mib')} MiB, the card has 8.")
    require(got == SETTINGS[2], f"For 8 MiB you choose micro_batch {got.get('micro_batch')}; 16 fits too and is faster.")
    require(run(100.0) == SETTINGS[0], "With 100 MiB everything fits: then do not accumulate, 1 x 64 is the fastest.")
    require(run(1.0) is None, "Nothing fits 1 MiB: return None.")
    return "The largest micro-batch that fits wastes the least time."


# ---- lesson 10 ----

LINES = {
    "A": "optimizer.zero_grad()",
    "B": "for xb, yb in micro_batches:",
    "C": "    loss = loss_fn(model(xb), yb)        # reduction=\"sum\"",
    "D": "    (loss / tokens_in_window).backward()",
    "E": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "F": "optimizer.step()",
}


@exercise("pytorch_order")
def check_pytorch_order(answer):
    """``pytorch_order``: the letters of LINES in the order of one window."""
    letters = "".join(str(c) for c in answer if str(c).strip()) if isinstance(answer, (str, list, tuple)) else str(answer)
    if letters in ("", "...") or (isinstance(answer, (list, tuple)) and ... in answer):
        raise NotDone
    letters = letters.upper()
    require(sorted(letters) == sorted(LINES), f"Use each of the letters {''.join(LINES)} once, got {letters}.")
    place = letters.index
    require(place("B") < place("C") < place("D"), "Inside the loop: first the loss, then its backward.")
    require(place("D") == place("B") + 2, "B, C and D are one block: two lines inside the loop, nothing between.")
    require(place("A") < place("B") or place("A") > place("F"), "zero_grad between the loop and the step throws the gradient away.")
    require(place("F") > place("D"), "The step comes after the loop: it needs all micro-batches.")
    require(place("D") < place("E") < place("F"), "Clip after the loop, once, and before the step.")
    return "Clear, accumulate, clip, step."


_SYMPTOMS = {
    "the gradient norm grows with K": "c",
    "K changes nothing but the number of updates": "a",
    "the first update comes after one micro-batch": "d",
    "loss and gradient norm drop in the last window of an epoch": "b",
}
CAUSES = {
    "a": "zero_grad() inside the loop",
    "b": "divided by K, though fewer micro-batches were left",
    "c": "nobody divides",
    "d": "index % K == 0 instead of (index + 1) % K == 0",
}


@exercise("diagnose")
def check_diagnose(answer):
    """``diagnose``: dict from each symptom to the letter of its cause in CAUSES."""
    require(isinstance(answer, dict) and set(answer) == set(_SYMPTOMS), f"Keep the symptoms {'; '.join(_SYMPTOMS)}.")
    if any(letter is ... for letter in answer.values()):
        raise NotDone
    for symptom, letter in _SYMPTOMS.items():
        given = str(answer[symptom]).strip().lower()
        require(given in CAUSES, f"{symptom}: expected one of the letters {', '.join(CAUSES)}, got {answer[symptom]!r}.")
        require(given == letter, f"{symptom}: \"{CAUSES[given]}\" would look different.")
    return "Four bugs that real projects had."


__all__ = ["CAUSES", "LINES", "SETTINGS", "TIMES", *(name for name in list(globals()) if name.startswith("check_"))]
