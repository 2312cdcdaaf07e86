"""`afterwit versions`: the weight versions, and what became of them."""

from __future__ import annotations

import sys

from afterwit.apps.cli.options import Adapter, Home, Json

EVENTS = 8
"""Holds and alarms that `versions` shows."""


def versions(adapter: Adapter = None, json_: Json = False, home: Home = None) -> None:
    """List the weight versions: what each came from and learned from, and which one is served (*).

    Below them the newest updates that were held back, and alarms that took versions back.
    """
    from dataclasses import asdict

    import orjson

    from afterwit.apps.build import store_of_home
    from afterwit.apps.printing.terminal import Terminal
    from afterwit.apps.printing.versions import event_lines, version_table
    from afterwit.core.adapters import SHARED
    from afterwit.core.promotion import EventKind

    with store_of_home(home) as store:
        rows = store.versions(adapter)
        if json_:
            for row in rows:
                sys.stdout.buffer.write(orjson.dumps(asdict(row)) + b"\n")
        else:
            events = store.events(adapter)
            served = {store.latest_published(each) for each in {SHARED, *(row.adapter for row in rows)}}
            places = {event.version for event in events if event.kind is EventKind.CONFIRM}
            console = Terminal()
            console.print(version_table(rows, served, places, width=console.width))
            for line in event_lines(events)[-EVENTS:]:
                console.print(line)
