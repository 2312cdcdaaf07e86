"""`pause` and `resume`: whether anything is learned."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from afterwit.apps.cli.options import Home


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
