"""`review` and `exclude`: what may be learned from."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from afterwit.apps.cli.options import Home, Json

ALL = "all"


def review(
    turns: Annotated[
        list[str] | None, typer.Argument(help="Turn ids or their beginnings; `all`: every one that waits.")
    ] = None,
    accept: Annotated[
        bool | None, typer.Option("--accept/--refuse", help="They may train; or they never do.")
    ] = None,
    json_: Json = False,
    home: Home = None,
) -> None:
    """List the turns that wait for your review, and why; accept or refuse them.

    Which turns wait is `learner.review`: off, flagged (those with something doubtful) or all.
    """
    import orjson

    from afterwit.apps.build import store_of_home
    from afterwit.apps.config import home_of, load
    from afterwit.apps.printing.review import as_json, described
    from afterwit.apps.printing.terminal import Terminal
    from afterwit.core.errors import SettingError
    from afterwit.learner.announce import turns as turns_
    from afterwit.learner.announce import with_note
    from afterwit.stages.review import WHY, waiting_for_review

    if turns and accept is None:
        raise SettingError("say what becomes of these turns: --accept or --refuse")
    if accept is not None and not turns:
        raise SettingError("name the turns, or `all`: `afterwit review all --accept`")
    settings = load(home=home_of(home)).learner
    with store_of_home(home) as store:
        rule = with_note(settings, store.note("learn")).teaching
        found = waiting_for_review(store, rule, now=time.time())
        if turns and accept is not None:
            ids = [record.turn.id for record in found] if turns == [ALL] else [*map(store.resolve, turns)]
            for turn, outcome in store.review(ids, accept=accept, now=time.time()).items():
                print(f"{turn}  {WHY[outcome]}")
            if not ids:
                print("no turn waits for your review: nothing was changed")
            return
    if json_:
        for record in found:
            sys.stdout.buffer.write(orjson.dumps(as_json(record)) + b"\n")
        return
    console = Terminal()
    for record in found:
        for line in described(record):
            console.say(line)
    wait = "waits" if len(found) == 1 else "wait"
    print(f"{turns_(len(found))} {wait} for your review (learner.review = {rule.review.value})")


def exclude(
    session: Annotated[str, typer.Argument(help="A session's id; or a turn's, for its session; or `last`.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let turns that come teach again.")] = False,
    home: Home = None,
) -> None:
    """Learn nothing from a session: no turn of it trains, neither those that wait nor those that come.

    It is served and recorded as before. What has been learned from it stays until `afterwit rollback`.
    """
    from afterwit.apps.build import store_of_home
    from afterwit.apps.cli.steer.named import session_named
    from afterwit.learner.announce import turns

    with store_of_home(home) as store:
        name = session_named(store, session)
        if undo:
            was = store.include(name)
            print(f"session {name} {'may teach again' if was else 'was not excluded'}")
            return
        found = store.exclude(name, now=time.time())
    print(f"session {name} teaches nothing: {turns(found.ended)} ended")
    if found.in_update:
        print(f"an update trains {turns(found.in_update)} of it at this moment")
    if found.trained:
        print(
            f"versions {', '.join(map(str, found.trained))} trained on it before:"
            f" `afterwit rollback {found.trained[0] - 1}` takes them back"
        )
