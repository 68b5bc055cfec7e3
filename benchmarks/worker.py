"""One lane in a process of its own: makes it, writes the losses of its first updates, then times updates when told to.

    python worker.py LANE VARIANT MODEL MICRO_BATCH THREADS CHECKED      stdin: "SECONDS" or an end; stdout: JSON lines
"""
import importlib
import json
import os
import sys
import time


def main():
    lane, variant, model, micro_batch, threads, checked = sys.argv[1:]
    if threads == "1":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if variant != "user":
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = threads
    trainer = importlib.import_module(f"lane_{lane}").Trainer(model, int(micro_batch), int(threads), variant)
    end = time.perf_counter() + 20                           # a slow model: as many as fit, at least 3
    losses = []
    while len(losses) < 3 or (len(losses) < int(checked) and time.perf_counter() < end):
        losses.append(trainer.update())
    print(json.dumps({"losses": losses, **trainer.about()}), flush=True)
    for line in sys.stdin:
        end, seconds = time.perf_counter() + float(line), []
        while not seconds or time.perf_counter() < end:
            start = time.perf_counter()
            trainer.update()
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
