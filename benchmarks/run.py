"""gradaccum and its peers side by side: one window of training at every micro-batch size.

Each lane (a framework in one of its ways of working) is a process. They take turns, A B C A B C, so that a busy minute hits all of them.
Before a time counts, the losses of the first updates must agree to 1e-3 with ours. Medians, spread, ratio to the best peer, and the
fraction of the machine's multiply-add peak, measured in the same run.

    python benchmarks/run.py [--models small,mlp] [--micro-batches 8,32] [--threads 2] [--rounds 7] [--out results]

Peers that are not installed are left out (pip install 'gradaccum[bench]' brings them). OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE, where set, are
unset for all lanes alike: they would slow NumPy and PyTorch.
"""
import argparse
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from models import MODELS, flops

HERE = Path(__file__).parent
LANES = [("gradaccum", "default"), ("gradaccum", "direct"), ("torch", "user"), ("torch", "tuned"), ("torch", "compile"), ("jax", "scan"), ("jax", "loop"),
         ("jax", "unroll"), ("numpy", "hand")]
# glibc keeps freed memory and uses huge pages; PyTorch too. Without, fresh memory for each operation costs the peers up to ten times.
KEEP_MEMORY = {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1",
               "THP_MEM_ALLOC_ENABLE": "1"}


def wanted(lane: str, variant: str, model: str, micro_batch: int) -> bool:
    """Leaves out what cannot run, and what would only repeat another lane."""
    kind, steps = MODELS[model]["kind"], MODELS[model]["window"] // micro_batch
    if importlib.util.find_spec(lane) is None:
        return False
    if variant == "direct":
        return kind in ("cnn", "resnet")
    if lane == "numpy":
        return kind == "mlp"
    if variant == "compile":
        return shutil.which("g++") is not None and model != "gpt2-124m"
    if lane == "jax" and kind in ("cnn", "resnet"):
        return variant == ("loop" if steps > 1 else "scan")
    if lane == "jax":
        return variant == "scan" or (variant == "unroll" and 1 < steps <= 16 and kind == "mlp")
    return True


class Lane:
    def __init__(self, lane, variant, model, micro_batch, threads):
        self.name, self.times, self.error = f"{lane} {variant}", [], None
        env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
        if lane in ("torch", "jax") and variant != "user":
            env |= KEEP_MEMORY
        command = [sys.executable, str(HERE / "worker.py"), lane, variant, model, str(micro_batch), str(threads), "20"]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.about = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.error = self.process.stderr.read().strip().splitlines()[-1:]
        return None

    def time(self, seconds: float) -> None:
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        self.times += self.read() or []

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def peaks(threads: int) -> list[float]:
    """GFLOP/s of one thread, and of all; nothing without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([compiler, "-O2", "-march=native", "-pthread", str(HERE / "peak.c"), "-o", f"{folder}/peak"], check=True)
        return [float(line) for line in subprocess.run([f"{folder}/peak", str(threads)], capture_output=True, text=True, check=True).stdout.split()]


def cell(model: str, micro_batch: int, options) -> list[dict]:
    """All lanes on one model at one micro-batch size."""
    lanes = [Lane(lane, variant, model, micro_batch, options.threads) for lane, variant in LANES
             if wanted(lane, variant, model, micro_batch) and (not options.lanes or f"{lane} {variant}" in options.lanes.split(","))]
    reference = next((lane.about["losses"] for lane in lanes if lane.error is None), [])
    for lane in lanes:
        if lane.error is None:
            worst = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(lane.about["losses"], reference))
            if worst > 1e-3:
                lane.error = [f"its losses differ by {worst:.1e}: its time means nothing"]
    for _ in range(options.rounds):
        for lane in lanes:
            if lane.error is None:
                lane.time(options.seconds)
    rows, work = [], MODELS[model]["window"] * flops(model)
    for lane in lanes:
        lane.close()
        row = {"model": model, "micro_batch": micro_batch, "steps": MODELS[model]["window"] // micro_batch, "threads": options.threads, "lane": lane.name}
        if lane.error is not None:
            rows.append(row | {"error": " ".join(lane.error)})
            print(f"{model} {micro_batch}: {lane.name}: {rows[-1]['error']}", file=sys.stderr)
            continue
        times = sorted(lane.times)
        tenth = lambda k: times[min(len(times) - 1, len(times) * k // 10)]  # noqa: E731
        median = statistics.median(times)
        row |= {"updates": len(times), "seconds": median, "p10": tenth(1), "p90": tenth(9), "samples_per_second": MODELS[model]["window"] / median}
        rows.append(row | {"gflops": work / median * 1e-9, "checked": len(lane.about.pop("losses")), "about": lane.about})
    return rows


def best_peer(rows: list[dict]) -> dict | None:
    peers = [r for r in rows if "seconds" in r and not r["lane"].startswith("gradaccum")]
    return min(peers, key=lambda r: r["seconds"], default=None)


def markdown(results: list[list[dict]], peak: float | None, head: str) -> str:
    lines = [head, "", "| model | micro-batch x steps | gradaccum, ms an update | samples/s | spread | of peak | best peer | its ms | ratio |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for rows, ours in ((rows, r) for rows in results for r in rows if r["lane"].startswith("gradaccum") and "seconds" in r):
        peer = best_peer(rows)
        spread = (ours["p90"] - ours["p10"]) / ours["seconds"]
        name = ours["model"] + ours["lane"].removeprefix("gradaccum").replace(" default", "")
        cells = [name, f"{ours['micro_batch']} x {ours['steps']}", f"{1e3 * ours['seconds']:.4g}", f"{ours['samples_per_second']:,.0f}",
                 f"{100 * spread:.0f} %", f"{ours['gflops'] / peak:.2f}" if peak else ""]
        cells += [peer["lane"], f"{1e3 * peer['seconds']:.4g}", f"**{peer['seconds'] / ours['seconds']:.2f}**"] if peer else ["none", "", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="small,mlp", help=f"of {', '.join(MODELS)}; or all")
    parser.add_argument("--micro-batches", default="", help="only these sizes")
    parser.add_argument("--lanes", default="", help='only these, for example "gradaccum default,torch tuned"')
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="of one turn of a lane")
    parser.add_argument("--out", default="", help="writes <out>.json and <out>.md")
    options = parser.parse_args()
    peak = peaks(options.threads)
    machine = f"{platform.machine()}, {options.threads} threads" + (f", multiply-add peak {peak[-1]:.0f} GFLOP/s" if peak else "")
    results = []
    for model in MODELS if options.models == "all" else options.models.split(","):
        for micro_batch in MODELS[model]["micro_batches"]:
            if options.micro_batches and str(micro_batch) not in options.micro_batches.split(","):
                continue
            results.append(cell(model, micro_batch, options))
            ours, peer = next((r for r in results[-1] if r["lane"].startswith("gradaccum") and "seconds" in r), None), best_peer(results[-1])
            if ours:
                against = f", {peer['seconds'] / ours['seconds']:.2f} times {peer['lane']}" if peer else ""
                print(f"{model:<14} {micro_batch:>5}: {1e3 * ours['seconds']:9.3f} ms, {ours['samples_per_second']:12,.0f} samples/s{against}", flush=True)
    versions = sorted({f"{r['lane'].split()[0]} {r['about']['version']}" for rows in results for r in rows if "about" in r})
    text = markdown(results, peak[-1] if peak else None, f"{machine}; {', '.join(versions)}. Medians of {options.rounds} turns; a turn is {options.seconds} s.")
    print("\n" + text)
    if options.out:
        Path(f"{options.out}.json").write_text(json.dumps({"machine": machine, "peaks": peak, "cells": results}, indent=1))
        Path(f"{options.out}.md").write_text(text)


if __name__ == "__main__":
    main()
