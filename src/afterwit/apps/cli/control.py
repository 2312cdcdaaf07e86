"""`pause`, `resume` and `status`: whether anything is learned, and when next."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from afterwit.apps.cli.options import Home, Json


def pause(
    reason: Annotated[str | None, typer.Argument(help="Why, for whoever looks at it later.")] = None,
    home: Home = None,
) -> None:
    """Learn nothing until `afterwit resume`: turns are served, recorded and judged, and wait.

    It holds across restarts. An update that has begun is finished; alarms still take versions back.
    """
    from afterwit.apps.build import store_of_home
    from afterwit.learner.announce import turns

    with store_of_home(home) as store:
        store.pause(reason or "", now=time.time())
        busy = store.in_update(now=time.time())
    begun = f"; an update of {turns(busy)} had begun and is finished" if busy else ""
    print(f"learning is paused: no update begins until `afterwit resume`{begun}")


def resume(home: Home = None) -> None:
    """End a pause: the turns that waited are learned from."""
    from afterwit.apps.build import store_of_home

    with store_of_home(home) as store:
        ended = store.resume()
    print("learning was not paused" if ended is None else "learning goes on")


def status(json_: Json = False, home: Home = None) -> None:
    """Show what Afterwit is doing, and when it will learn next."""
    from dataclasses import asdict

    import orjson

    from afterwit.apps.build import store_of_home
    from afterwit.apps.config import home_of, load
    from afterwit.apps.home import VERSIONS
    from afterwit.apps.status import lines, overview
    from afterwit.checkpoints import held
    from afterwit.learner.announce import with_note

    folder = home_of(home)
    settings = load(home=folder).learner
    with store_of_home(home) as store:
        found = overview(
            store,
            with_note(settings, store.note("learn")),
            serving=held(folder / ".gateway.lock"),
            learning=held(folder / VERSIONS / ".learner.lock"),
            now=time.time(),
        )
    if json_:
        sys.stdout.buffer.write(orjson.dumps(asdict(found), option=orjson.OPT_NON_STR_KEYS) + b"\n")
        return
    for name, words in lines(found):
        print(f"{name:<13} {words}")
