"""Sessions, and the turns of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.page.views.view import NotFound, Wanted, before
from afterwit.store import Filter, Store

PAGE = 30
TURNS = 50


def view(request: Request, gateway: Gateway) -> Wanted:
    """Sessions, the newest first."""
    start = before(request)

    def read(store: Store) -> Mapping[str, Any]:
        found = store.session_lines(before=start, limit=PAGE + 1)
        older = found[PAGE - 1].seq if len(found) > PAGE else None
        return {"sessions": found[:PAGE], "older": older, "first_page": start is None}

    return Wanted(template="sessions.html", read=read)


def one(request: Request, gateway: Gateway) -> Wanted:
    """The turns of a session, the newest first."""
    session, start = request.path_params["session"], before(request)

    def read(store: Store) -> Mapping[str, Any]:
        found = store.turn_lines(Filter(session=session), before=start, limit=TURNS + 1)
        if not found and start is None:
            raise NotFound("There is no session of this name, or its content was removed.")
        older = found[TURNS - 1].seq if len(found) > TURNS else None
        return {
            "session": session,
            "turns": found[:TURNS],
            "older": older,
            "first_page": start is None,
            "excluded": session in store.excluded(),
        }

    return Wanted(template="session.html", read=read)
