"""Run every question, or those that are named; then one table, and the results as JSON.

`python -m benchmarks [NAME ...] [--without NAME ...] [--quick] [--runs N] [--device cuda --shape qwen3-4b]
[--out FILE]`
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.asked import SHAPES, Asked, answer
from benchmarks.measure import Row, apart, lines
from benchmarks.results import write

QUESTIONS = (
    "loss",
    "scoring",
    "peers",
    "packing",
    "attention",
    "exact",
    "hindsight",
    "hindsight_vllm",
    "judging",
    "overlap",
    "update",
    "ranks",
    "promotion",
    "segments",
    "load",
    "lora",
    "adapters",
    "engine",
    "published",
    "prompts",
    "agents",
    "gateway",
    "proxy",
    "through",
    "fleet",
    "store",
    "postgresql",
    "scale",
)
INSTALLING = ("peers", "hindsight_vllm", "proxy", "published")
"""Questions that need packages which the tests do not. `--quick` leaves them out unless they are named."""
QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "KINETO_LOG_LEVEL": "6",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}
"""Silences libraries in the processes of the questions."""
ON_A_DEVICE = (*QUESTIONS[:5], "hindsight", "update")
"""Those that a GPU answers too."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="\n".join(["questions:", *(f"  {name:15} {_question(name)}" for name in QUESTIONS)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", choices=[*QUESTIONS, []], metavar="NAME", help="see below")
    parser.add_argument(
        "--without", nargs="+", choices=QUESTIONS, default=[], metavar="NAME", help="leave out"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller and coarser: checks that everything runs"
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=Asked().runs,
        help="rounds of each measurement; a single one warms nothing up",
    )
    parser.add_argument("--device", default=Asked().device, choices=("cpu", "cuda"))
    parser.add_argument("--shape", choices=SHAPES, help="one model's shape instead of each question's own")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/results.json"))
    chosen = parser.parse_args()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    asked = Asked(device=chosen.device, shape=chosen.shape, quick=chosen.quick, runs=chosen.runs)
    left_out = {*chosen.without, *(INSTALLING if asked.quick else ())}
    names = chosen.names or [name for name in _all(asked) if name not in left_out]
    rows, failed = list[Row](), list[str]()
    for name in names:
        found = answered(name, asked)
        if found is None:
            failed.append(name)
            continue
        rows += found
        write(chosen.out, {name: found}, asked)
    print("\n== all", *lines(rows), f"written to {chosen.out}", sep="\n")
    if asked.quick:
        print("\nQuick: at these sizes targets need not hold; `make bench` says whether they do.")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _question(name: str) -> str:
    """The first line of the question's file."""
    tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def _all(asked: Asked) -> Sequence[str]:
    return QUESTIONS if asked.shape is None and asked.device == "cpu" else ON_A_DEVICE


def answered(name: str, asked: Asked) -> list[Row] | None:
    """The printed rows of a question; None if it ended in an error.

    Quick ones share this process, and so the import of torch: their figures count for nothing.
    """
    began, spent = time.perf_counter(), sum(os.times()[:4])
    print(f"\n== {name}", flush=True)
    try:
        found = answer(name, asked) if asked.quick else apart(answer, name, asked)
    except (Exception, SystemExit) as error:
        print(f"{type(error).__name__}: {error}")
        return None
    took = f"({time.perf_counter() - began:.0f} s, {sum(os.times()[:4]) - spent:.0f} s of CPU)"
    print(*lines(found), took, sep="\n", flush=True)
    return found


if __name__ == "__main__":
    main()
