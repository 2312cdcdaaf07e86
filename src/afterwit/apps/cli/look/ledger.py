"""`afterwit ledger` and `afterwit progress`: what was learned from whom, and whether it helped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afterwit.apps.cli.options import Config, Home, Json

if TYPE_CHECKING:
    from afterwit.apps.printing.ledger import LedgerEntry


def ledger(
    version: Annotated[
        int | None, typer.Argument(help="A weight version. Default: the newest that learned something.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="What became of this conversation, in place of one version.")
    ] = None,
    answers: Annotated[
        bool, typer.Option("--answers", help="Sample greedy answers before and after (loads both versions).")
    ] = False,
    json_: Json = False,
    home: Home = None,
    config: Config = None,
) -> None:
    """Show what a version learned: its turns, what followed them, votes, hints, and the effect of the update.

    With `--session`, all turns of a conversation, and the versions that learned from each.
    """
    import orjson

    from afterwit.apps.build import store_of_home
    from afterwit.apps.printing import ledger as entries
    from afterwit.apps.printing.terminal import Terminal
    from afterwit.apps.printing.versions import version_table
    from afterwit.core.errors import SettingError

    if session is not None and (version is not None or answers):
        raise SettingError("--session shows all versions of a conversation: give it alone")
    console, sampled = Terminal(), dict[str, tuple[str, str]]()
    with store_of_home(home) as store:
        if session is not None:
            listed = entries.of_session(store, session)
        else:
            chosen = entries.chosen_version(store.versions(), version)
            listed = entries.of_version(store, chosen.number)
            if answers:
                sampled = _answers(chosen.number, listed, home, config)
            if not json_:
                console.print(
                    version_table([chosen], {store.latest_published(chosen.adapter)}, width=console.width)
                )
        fates = entries.all_fates({each.version for one in listed for each in one.learned}, store)
    for entry in listed:
        if json_:
            line = entries.as_json(entry, fates, answers=sampled.get(entry.turn))
            sys.stdout.buffer.write(orjson.dumps(line) + b"\n")
        else:
            for text in entries.lines(entry, fates, answers=sampled.get(entry.turn)):
                console.print(text)


def _answers(
    number: int, listed: Sequence[LedgerEntry], home: Path | None, config: Path | None
) -> dict[str, tuple[str, str]]:
    from afterwit.apps.config import home_of, load
    from afterwit.apps.model import model_folder
    from afterwit.apps.printing.answers import answers
    from afterwit.core.turn import Turn

    folder = home_of(home)
    settings = load(home=folder, file=config)
    found = [each.record.turn for each in listed if each.record is not None]
    turns = [turn for turn in found if isinstance(turn, Turn)]
    return answers(settings, folder, model_folder(settings.model, folder), number, turns)


def progress(
    png: Annotated[Path | None, typer.Option(help="Also draw it into this file (extra demo).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
    home: Home = None,
) -> None:
    """Am I correcting it less? Complaints a session over time, for each source and kind of task.

    Counted from the store alone. Intervals hold the true value in 95 of 100 cases.
    """
    import orjson

    from afterwit.apps.build import store_of_home
    from afterwit.apps.printing.progress import as_json, draw, parts_of, text_of
    from afterwit.apps.printing.terminal import Terminal
    from afterwit.stages.promotion.requests import requests_of

    with store_of_home(home) as store:
        parts = parts_of(requests_of(store.all_episodes()))
    if json_:
        sys.stdout.buffer.write(orjson.dumps(as_json(parts)) + b"\n")
    else:
        console = Terminal()
        for line in text_of(parts):
            console.print(line)
    if png is not None:
        draw(parts["all"]["all"], png)
        print(f"wrote {png}", file=sys.stderr)
