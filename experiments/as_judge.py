r"""`python -m experiments.as_judge`: how often the agent answers people as a judge (`\boxed{-1}`).

The model is agent and judge at once. Each run plays people's tasks of the tools world in the simulation, the
program of rules as judge, and counts the agent's messages that hold a verdict: on held-out tasks before and
after, and in the people's conversations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import torch
import typer

from afterwit.demo.people import MEASURE, PEOPLE, SEED, held_out
from afterwit.demo.settings import choose
from afterwit.demo.world import Message
from afterwit.demo.worlds import WORLDS
from experiments.simulation.plan import HERE, NOWHERE, UNGUARDED
from experiments.simulation.system import simulation

WORLD = WORLDS["tools"]


def main(
    seeds: Annotated[list[int], typer.Option(help="Runs; may be given again.")] = [0, 1, 2, 3],  # noqa: B006 - Typer's way
    interactions: Annotated[int, typer.Option(help="Tasks of people in a run.", min=1)] = 96,
    tasks: Annotated[int, typer.Option(help="Held-out tasks before and after.", min=1)] = 100,
    model: Annotated[Path | None, typer.Option(help="Another model than the world's.")] = None,
) -> None:
    """A row for each run: how many of the agent's messages hold a verdict."""
    torch.set_num_threads(1)
    print("| seed | before | with people | after | success before | after |\n" + "| --- " * 6 + "|")
    for seed in seeds:
        print(asyncio.run(_row(seed, interactions, tasks, model or WORLD.folder / "model")), flush=True)


async def _row(seed: int, interactions: int, tasks: int, model: Path) -> str:
    direct = {**HERE, **UNGUARDED, "model": str(model)}
    settings = choose(WORLD, NOWHERE, judge="rules", direct=direct).settings
    fixed, rng = held_out(WORLD, MEASURE, tasks, SEED + seed), Random(seed)
    async with simulation(settings, WORLD, seed=seed, program=WORLD.judge) as system:
        before = await system.measure(fixed)
        played = [await system.interact(number + 1, PEOPLE, rng) for number in range(interactions)]
        after = await system.measure(fixed)
    counted = [verdicts(each.messages for each in talks) for talks in (before.trials, played, after.trials)]
    shares = [f"{of_them} of {messages}" for of_them, messages in counted]
    return f"| {seed} | {' | '.join(shares)} | {before.task_success:.2f} | {after.task_success:.2f} |"


def verdicts(talks: Iterable[Sequence[Message]]) -> tuple[int, int]:
    """How many of the agent's messages hold a verdict, and how many there are."""
    said = [message for talk in talks for message in talk if message["role"] == "assistant"]
    return sum("\\boxed{" in (message["content"] or "") for message in said), len(said)


if __name__ == "__main__":
    typer.run(main)
