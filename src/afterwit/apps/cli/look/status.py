"""`afterwit status`: what happens now, and when it will learn next."""

from __future__ import annotations

import sys
import time

from afterwit.apps.cli.options import Home, Json


def status(json_: Json = False, home: Home = None) -> None:
    """Show what Afterwit is doing, and when it will learn next."""
    from dataclasses import asdict

    import orjson

    from afterwit.apps.build import store_of_home
    from afterwit.apps.config import home_of, load
    from afterwit.apps.home import VERSIONS
    from afterwit.apps.printing.status import lines, overview
    from afterwit.apps.printing.terminal import Terminal
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
    console = Terminal()
    for name, words in lines(found):
        console.say(f"{name:<13} {words}", style="bold red" if name.endswith("!") else None)
