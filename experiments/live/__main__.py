"""`python -m experiments.live`: play the demo over seeds, each run with its own gateway, clients and learner.

Finished runs are kept in DATA, a JSON line each, and not played again; `experiments.study.write` makes their
tables.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from afterwit import config
from afterwit.demo.worlds import WORLDS
from experiments.cases.accuracy import judge_accuracy
from experiments.live.runs import LiveResult, LiveRuns, result_of

INTERACTIONS: Mapping[str, int] = {"tools": 48, "chat": 36}
"""Tasks of people, by world: the chat world is learned sooner."""


def main(
    world: Annotated[
        list[str] | None, typer.Option(help="A world; may be given again. Default: all.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each world, seeds 0 and up.", min=1)] = 4,
    data: Annotated[Path, typer.Option(help="The finished runs.")] = Path("docs/data/live.jsonl"),
) -> None:
    """Play what is missing, one run after another: each needs the machine's cores for itself."""
    kept = LiveRuns(data)
    for seed in range(seeds):
        for name in world or list(WORLDS):
            if (name, seed) not in kept.read():
                kept.add(_played(name, seed))


def _played(world: str, seed: int) -> LiveResult:
    """A run of `afterwit demo`, and how often its judge is right."""
    with tempfile.TemporaryDirectory(prefix="afterwit-live-") as out:
        asked = [
            "--world",
            world,
            "--seed",
            str(seed),
            "--interactions",
            str(INTERACTIONS[world]),
            "--out",
            out,
        ]
        subprocess.run([sys.executable, "-m", "afterwit", "demo", *asked], check=True)
        report = (Path(out) / "report.json").read_text(encoding="utf-8")
        settings = config.load(home=Path(out) / "home", environment={})
    return result_of(report, judge_accuracy=judge_accuracy(settings, WORLDS[world], seed=seed))


if __name__ == "__main__":
    typer.run(main)
