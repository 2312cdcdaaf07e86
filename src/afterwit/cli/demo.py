"""`afterwit demo`: the whole loop, live, with a tiny model and simulated people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from afterwit import recipes
from afterwit.cli.options import Set
from afterwit.errors import SettingError

World = Annotated[
    str, typer.Option(help="tools: a project's house rules, real files. chat: how a person likes answers.")
]
DemoRecipe = Annotated[str | None, typer.Option(help=f"A published recipe: {', '.join(recipes.names())}.")]
Objective = Annotated[
    str | None, typer.Option(help="hybrid, topk_opd, token_opd, rl, ... Default: the recipe's.")
]
Interactions = Annotated[int, typer.Option(help="How many tasks people give.")]
Seed = Annotated[int, typer.Option(help="Decides tasks, people and sampling.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Where the report goes. Default: demo-report, in the chat world demo-report-chat."),
]
Judge = Annotated[str | None, typer.Option(help="model or rules. Default: the recipe's.")]
DemoEngine = Annotated[
    str | None,
    typer.Option(help="Which engine samples: vllm or sglang, started for the demo. Default: embedded."),
]
DemoEngineUrl = Annotated[
    str | None, typer.Option(help="A server of the demo's model that runs already: none is started.")
]


def demo(
    world: World = "tools",
    recipe: DemoRecipe = None,
    objective: Objective = None,
    interactions: Interactions = 96,
    seed: Seed = 0,
    out: Out = None,
    judge: Judge = None,
    engine: DemoEngine = None,
    engine_url: DemoEngineUrl = None,
    set_: Set = None,
) -> None:
    """See an agent learn from being used: real gateway, real clients, a tiny model, a few minutes, no GPU.

    Leaves report.html, report.json and learning.svg in OUT.
    """
    from afterwit.demo.command import run
    from afterwit.sandbox.box import weakness

    if world == "tools" and (said := weakness()):
        print(said, file=sys.stderr)
    if recipe in recipes.machines():
        raise SettingError(
            f"--recipe {recipe} is for a machine with cards: the demo takes {', '.join(recipes.names())}"
        )
    run(
        world,
        out=out or Path("demo-report" if world == "tools" else f"demo-report-{world}"),
        interactions=interactions,
        seed=seed,
        judge=judge,
        recipe=recipe,
        pairs=set_ or (),
        direct={"objective.objective": objective, "engine.kind": engine, "engine.url": engine_url},
    )
