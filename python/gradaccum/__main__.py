"""``python -m gradaccum``: demonstrations and information."""
from __future__ import annotations

import argparse
import sys


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gradaccum", description="Gradient accumulation that is exact, visible and fast.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    demo = commands.add_parser("demo", help="train on handwritten digits as 1 x 128 and as 4 x 32, and compare every bit")
    demo.add_argument("--epochs", type=int, default=10, metavar="N", help="passes over the training images (default 10)")
    demo.add_argument("--seed", type=int, default=0, help="of the initial values and the order of the images (default 0)")
    medical = commands.add_parser("medical", help="tissue in an MRI: batch 64 does not fit 8 MiB, 16 x 4 does, with the same bits")
    medical.add_argument("--epochs", type=int, default=5, metavar="N", help="passes over the training patches (default 5)")
    medical.add_argument("--seed", type=int, default=0, help="of the initial values and the order of the patches (default 0)")
    medical.add_argument("--out", metavar="DIR", help="write the log, and with matplotlib the pictures, to this folder")
    text = commands.add_parser("text", help="a character GPT on names of unequal length: the right divisor and the wrong one")
    text.add_argument("--updates", type=int, default=300, metavar="N", help="windows of 32 names (default 300)")
    text.add_argument("--seed", type=int, default=0, help="of the initial values, the order of the names and the samples (default 0)")
    commands.add_parser("info", help="versions, CPU level, threads")
    options = parser.parse_args(argv)
    if options.command == "info":
        from . import info

        for name, value in info().items():
            print(f"{name:<10} {value}")
        return 0
    if options.command == "text":
        if options.updates < 1:
            parser.error(f"--updates {options.updates}: expected at least 1")
        from .text import run

        return run(options.updates, options.seed)
    if options.epochs < 1:
        parser.error(f"--epochs {options.epochs}: expected at least 1")
    if options.command == "medical":
        from .medical import run

        return run(options.epochs, options.seed, options.out)
    from .demo import run

    return run(options.epochs, options.seed)


if __name__ == "__main__":
    sys.exit(main())
