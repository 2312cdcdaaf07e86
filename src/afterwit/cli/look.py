"""The commands that only read: `status`, `turns`, `show`, `ledger`, `progress`, `judges`, `versions`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afterwit.cli.options import (
    LISTED,
    Adapter,
    Config,
    Home,
    Json,
    LearnedIn,
    Limit,
    OfSession,
    choice,
    end_at_signals,
    listed,
    store_of,
)

ALL = "all"


def status(json_: Json = False, home: Home = None) -> None:
    """Show what Afterwit is doing, and when it will learn next.

    afterwit status
    """
    from afterwit.printing.status import print_status

    print_status(home, json=json_)


def turns(
    kind: Annotated[
        str, typer.Option(help="main, practice, side (titles, summaries, measurements), unknown, or all.")
    ] = "main",
    state: Annotated[str | None, typer.Option(help="OPEN, ANSWERED, JUDGED, TRAINED or SKIPPED.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only turns skipped for this reason.")] = None,
    session: OfSession = None,
    version: LearnedIn = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Number of turns, newest first; 0: all, oldest first.")
    ] = LISTED,
    json_: Json = False,
    home: Home = None,
) -> None:
    """List turns with state and reason, and why some lack a parent.

    afterwit turns
    afterwit turns --state SKIPPED --limit 50
    """
    from afterwit.lifecycle import Reason, State
    from afterwit.printing.turns import print_turns
    from afterwit.store import Filter
    from afterwit.turn import Kind

    where = Filter(
        session=session,
        state=choice(State, state, "--state"),
        reason=choice(Reason, reason, "--reason"),
        kind=None if kind == ALL else choice(Kind, kind, "--kind"),
        version=version,
    )
    print_turns(home, where, kind=kind, limit=limit, json=json_)


def show(
    turn: Annotated[str, typer.Argument(help="A turn's id or its beginning, a response id, or `last`.")],
    advantages: Annotated[
        bool, typer.Option(help="Compute each token's advantage as an update does (loads the model).")
    ] = True,
    home: Home = None,
    config: Config = None,
) -> None:
    """Show one turn: the end of its prompt, response, next state, votes, hints, and advantages in colour.

    afterwit show last
    afterwit show last --no-advantages    # at once: loads no model
    """
    end_at_signals()
    from afterwit.printing.turns import print_turn

    print_turn(home, turn, advantages=advantages, config=config)


def judges(json_: Json = False, home: Home = None) -> None:
    """Show whether the judge can be trusted: its votes, compared with each other and with people's answers.

    Intervals hold the true value in 95 of 100 cases.

        afterwit judges
    """
    from dataclasses import asdict

    from afterwit.judging.ability import report_of
    from afterwit.judging.checks import findings, warnings
    from afterwit.printing.terminal import Terminal, write_json

    with store_of(home) as store:
        report = report_of(store)
    if json_:
        write_json(asdict(report) | {"warnings": list(warnings(report))})
        return
    console = Terminal()
    for name, words in findings(report):
        console.say(f"{name:<28} {words}")
    for words in warnings(report):
        console.say(f"! {words}")


def ledger(
    version: Annotated[
        int | None, typer.Argument(help="A weight version. Default: the newest that learned something.")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            help="The learning from this session, in place of one version: its id, a turn's, or `last`."
        ),
    ] = None,
    answers: Annotated[
        bool, typer.Option("--answers", help="Sample greedy answers before and after (loads both versions).")
    ] = False,
    json_: Json = False,
    home: Home = None,
    config: Config = None,
) -> None:
    """Show what a version learned: its turns, next states, votes, hints, and the effect of the update.

    With `--session`, all turns of a conversation, and the versions that learned from each.

        afterwit ledger                     # the newest that learned
        afterwit ledger 3 --answers
        afterwit ledger --session last
    """
    end_at_signals()
    from afterwit.printing.ledger import print_ledger

    print_ledger(home, version=version, session=session, answers=answers, json=json_, config=config)


def progress(
    png: Annotated[Path | None, typer.Option(help="Also draw it into this file (extra demo).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
    home: Home = None,
) -> None:
    """Show whether you correct it less: complaints per session over time, by source and kind of task.

    Counted from the store alone. Intervals hold the true value in 95 of 100 cases.

        afterwit progress
        afterwit progress --png progress.png
    """
    from afterwit.printing.progress import print_progress

    print_progress(home, json=json_, png=png)


def versions(adapter: Adapter = None, limit: Limit = None, json_: Json = False, home: Home = None) -> None:
    """List the versions with their parents and turns; * marks the served one.

    Below them the newest updates that were held back, and alarms that took versions back.

        afterwit versions
    """
    from afterwit.printing.ledger import print_versions

    print_versions(home, adapter=adapter, limit=listed(limit, json=json_), json=json_)
