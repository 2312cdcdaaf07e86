"""`afterwit atropos`: the environment for Atropos. The library reads the flags, and says what they are."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="The agentic OPD environment for Atropos. The library's own flags: --env.X, --openai.X, --config.",
    no_args_is_help=True,
)
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=PASSED_ON)
def serve(context: typer.Context) -> None:
    """Send groups of scored rollouts to a `run-api` server, until its trainer has had enough."""
    _run(context)


@app.command(context_settings=PASSED_ON)
def process(context: typer.Context) -> None:
    """Write groups to a JSONL and an HTML file; no server of Atropos is needed."""
    _run(context)


@app.command(context_settings=PASSED_ON)
def evaluate(context: typer.Context) -> None:
    """Measure the policy on the held-out tasks, at temperature 0."""
    _run(context)


def _run(context: typer.Context) -> None:
    from afterwit.apps.atropos.environment.command import run

    assert context.info_name is not None
    run(context.info_name, context.args)
