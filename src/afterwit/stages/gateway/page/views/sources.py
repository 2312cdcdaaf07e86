"""Who teaches: for each key and kind of client, what came of its newest turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from afterwit.core.progress import by
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.page.views.view import Wanted
from afterwit.stages.promotion.requests import requests_of
from afterwit.store import Store

TURNS = 5_000
"""Turns that are counted, the newest ones."""
REQUESTS = 2_000
"""Requests whose complaints are counted, the newest ones."""


def view(request: Request, gateway: Gateway) -> Wanted:
    """All sources of these turns."""

    def read(store: Store) -> Mapping[str, Any]:
        requests = requests_of(store.all_episodes(limit=REQUESTS))
        return {
            "sources": store.source_lines(newest=TURNS),
            "counted": TURNS,
            "requests": REQUESTS,
            "less": {
                "source": by(requests, lambda each: each.source),
                "kind of task": by(requests, lambda each: each.kind),
            },
        }

    return Wanted(template="sources.html", read=read)
