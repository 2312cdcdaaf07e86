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

Interactions = Annotated[
    int | None,
    typer.Option(help="How many tasks people give. Default: 96, with --ruin 60, with --real-defaults 100."),
]

Seed = Annotated[int, typer.Option(help="Tasks, people and sampling follow from it.")]

Out = Annotated[
    Path | None,
    typer.Option(
        help="Where the report goes. Default: demo-report, in the chat world demo-report-chat; demo-ruin."
    ),
]

Judge = Annotated[str | None, typer.Option(help="model or rules. Default: the recipe's.")]

People = Annotated[
    str,
    typer.Option(
        help="full: name all that is wrong, and thank. one: name one thing at a time. vague: never say what."
        " thankless: never thank."
    ),
]

DemoEngine = Annotated[
    str | None,
    typer.Option(help="Which engine samples: vllm or sglang, started for the demo. Default: embedded."),
]

DemoEngineUrl = Annotated[
    str | None, typer.Option(help="A server of the demo's model that runs already: none is started.")
]

Ruin = Annotated[
    bool,
    typer.Option("--ruin", help="A rate that ruins the model, with promotion and without it, side by side."),
]

RealDefaults = Annotated[
    bool,
    typer.Option(
        "--real-defaults",
        help="What `serve` itself would learn: its settings, but for a tiny model's rate.",
    ),
]


def demo(
    world: World = "tools",
    recipe: DemoRecipe = None,
    objective: Objective = None,
    interactions: Interactions = None,
    seed: Seed = 0,
    out: Out = None,
    judge: Judge = None,
    people: People = "full",
    engine: DemoEngine = None,
    engine_url: DemoEngineUrl = None,
    ruin: Ruin = False,
    real_defaults: RealDefaults = False,
    set_: Set = None,
) -> None:
    """See an agent learn from being used: real gateway, real clients, a tiny model, a few minutes, no GPU.

    Leaves report.html, report.json and learning.png in OUT.
    """
    from afterwit.demo.asked import Asked
    from afterwit.demo.command import ruin as run_ruin
    from afterwit.demo.command import run
    from afterwit.sandbox.box import weakness

    if world == "tools" and (said := weakness()):
        print(said, file=sys.stderr)
    if ruin:
        if objective or recipe or engine or engine_url or real_defaults or people != "full":
            raise SettingError("--ruin has settings and people of its own: leave the other flags out")
        out, pairs = out or Path("demo-ruin"), set_ or ()
        run_ruin(world=world, interactions=interactions, seed=seed, out=out, judge=judge, pairs=pairs)
        return
    _check_recipe(recipe, real_defaults=real_defaults)
    asked = Asked(
        world=world,
        objective=objective,
        recipe=recipe,
        interactions=interactions if interactions is not None else 100 if real_defaults else 96,
        seed=seed,
        out=out or Path("demo-report" if world == "tools" else f"demo-report-{world}"),
        judge=judge,
        people=people,
        engine=engine,
        engine_url=engine_url,
        pairs=set_ or (),
        real_defaults=real_defaults,
    )
    run(asked)


def _check_recipe(recipe: str | None, *, real_defaults: bool) -> None:
    if recipe in recipes.machines():
        raise SettingError(
            f"--recipe {recipe} is for a machine with cards: the demo takes {', '.join(recipes.names())}"
        )
    if real_defaults and recipe:
        raise SettingError("--real-defaults are serve's own settings, and no recipe: leave one of them out")
