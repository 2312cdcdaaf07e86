"""`afterwit atropos`: the environment for Atropos. The library parses and documents the flags."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="The agentic OPD environment for Atropos. The library's own flags: --env.X, --openai.X, --config.",
    no_args_is_help=True,
)

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

COMMANDS = {
    "serve": "Send groups of scored rollouts to a `run-api` server, until its trainer has had enough.",
    "process": "Write groups to a JSONL and an HTML file; no server of Atropos is needed.",
    "evaluate": "Measure the policy on the held-out tasks, at temperature 0.",
}


def _run(context: typer.Context) -> None:
    from afterwit_atropos.environment.env import run

    assert context.info_name is not None
    run(context.info_name, context.args)


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help, context_settings=PASSED_ON)(_run)


@app.command()
def demo(
    steps: Annotated[int, typer.Option(min=4, help="Updates of the trainer.")] = 16,
    profile: Annotated[str, typer.Option(help="topk or sampled: the form of the teacher's rows.")] = "topk",
    seed: Annotated[int, typer.Option(help="Tasks and their order follow from it.")] = 0,
    out: Annotated[Path, typer.Option(help="Where logs and learning.png go.")] = Path("demo-report-atropos"),
) -> None:
    """Environment, run-api and trainer on this machine: the demo's tiny model learns house rules.

    Needs `afterwit-atropos[library]` and `afterwit[demo]`, and no GPU. Leaves learning.png and the logs in
    OUT.
    """
    from afterwit.api.turns import SettingError
    from afterwit_atropos.demo import draw, run
    from afterwit_atropos.group import Profile

    if profile not in list(Profile):
        raise SettingError(f"--profile {profile}: it must be one of {', '.join(Profile)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the processes that it started end with it
    points = run(out, steps=steps, profile=Profile(profile), seed=seed)
    draw(points, f"tools world over Atropos, rows: {profile}", out / "learning.png")
    print(out / "learning.png")
