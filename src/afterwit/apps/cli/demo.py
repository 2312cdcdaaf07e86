"""`afterwit demo`: the whole loop, live, with a tiny model and simulated people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from afterwit import recipes
from afterwit.apps.cli.options import Set
from afterwit.core.errors import SettingError


def demo(
    world: Annotated[
        str,
        typer.Option(help="tools: a project's house rules, real files. chat: how a person likes answers."),
    ] = "tools",
    recipe: Annotated[
        str | None, typer.Option(help=f"A published recipe: {', '.join(recipes.names())}.")
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="hybrid, topk_opd, token_opd, rl, ... Default: the recipe's.")
    ] = None,
    interactions: Annotated[
        int | None,
        typer.Option(
            help="How many tasks people give. Default: 96, with --ruin 60, with --real-defaults 100."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Tasks, people and sampling follow from it.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the report goes. Default: demo-report, in the chat world demo-report-chat; demo-ruin."
        ),
    ] = None,
    judge: Annotated[str | None, typer.Option(help="model or rules. Default: the recipe's.")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Which engine samples: vllm or sglang, started for the demo. Default: embedded."),
    ] = None,
    engine_url: Annotated[
        str | None,
        typer.Option(help="A server of the demo's model that runs already: none is started."),
    ] = None,
    ruin: Annotated[
        bool,
        typer.Option(
            "--ruin", help="A rate that ruins the model, with promotion and without it, side by side."
        ),
    ] = False,
    real_defaults: Annotated[
        bool,
        typer.Option(
            "--real-defaults",
            help="What `serve` itself would learn: its settings, but for a tiny model's rate.",
        ),
    ] = False,
    set_: Set = None,
) -> None:
    """See an agent learn from being used: real gateway, real clients, a tiny model, a few minutes, no GPU.

    Leaves report.html, report.json and learning.png in OUT.
    """
    from afterwit.apps.demo import ruin as ruined
    from afterwit.apps.demo.command import MEASURED, REAL_DEFAULTS_MEASURED, run
    from afterwit.apps.sandbox import weakness

    if world == "tools" and (said := weakness()):
        print(said, file=sys.stderr)
    if ruin:
        if objective or recipe or engine or engine_url or real_defaults:
            raise SettingError("--ruin has an objective and an engine of its own: leave the other flags out")
        ruined.ruin(
            world=world,
            interactions=interactions,
            seed=seed,
            out=out or Path("demo-ruin"),
            judge=judge,
            pairs=set_ or (),
        )
        return
    if real_defaults and recipe:
        raise SettingError("--real-defaults are serve's own settings, and no recipe: leave one of them out")
    run(
        world=world,
        objective=objective,
        recipe=recipe,
        interactions=interactions if interactions is not None else 100 if real_defaults else 96,
        seed=seed,
        out=out or Path("demo-report" if world == "tools" else f"demo-report-{world}"),
        judge=judge,
        engine=engine,
        engine_url=engine_url,
        pairs=set_ or (),
        measured=REAL_DEFAULTS_MEASURED if real_defaults else MEASURED,
        real_defaults=real_defaults,
    )
