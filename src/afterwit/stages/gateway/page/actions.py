"""What the buttons do: each does what the command of its name does, and says which page to look at then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

from starlette.requests import Request

from afterwit.core.errors import RequestError
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.page.controls import Controls
from afterwit.stages.gateway.page.views.view import number

Fields = Mapping[str, str]
Action = Callable[[Request, Fields], Awaitable[str]]

LONGEST_REASON = 200
"""Characters of why a person pauses."""


class Actions:
    """The buttons. They raise AfterwitError if nothing was changed."""

    def __init__(self, gateway: Gateway, controls: Controls) -> None:
        self._gateway, self._controls = gateway, controls

    def routes(self) -> dict[str, Action]:
        """By address."""
        return {
            "/ui/learning/pause": self._pause,
            "/ui/learning/resume": self._resume,
            "/ui/versions/{version}/rollback": self._roll_back,
            "/ui/turns/{turn}/review": self._review,
            "/ui/sessions/{session:path}/exclude": self._exclude,
            "/ui/sessions/{session:path}/include": self._include,
        }

    async def _pause(self, request: Request, fields: Fields) -> str:
        words, now = fields.get("why", "").strip()[:LONGEST_REASON], self._gateway.now()
        await self._gateway.store.call(lambda store: store.pause(words, now=now))
        return "/ui"

    async def _resume(self, request: Request, fields: Fields) -> str:
        await self._gateway.store.call(lambda store: store.resume())
        return "/ui"

    async def _roll_back(self, request: Request, fields: Fields) -> str:
        target = number(request.path_params["version"])
        if target is None:
            raise RequestError(404, "unknown_version", "There is no such version.")
        made = await self._controls.roll_back(target)
        return f"/ui/versions?made={made.number}"

    async def _review(self, request: Request, fields: Fields) -> str:
        turn, now = request.path_params["turn"], self._gateway.now()
        accept = fields.get("accept") == "yes"
        found = await self._gateway.store.call(lambda store: store.review([turn], accept=accept, now=now))
        return f"/ui/review?outcome={found[turn].value}"

    async def _exclude(self, request: Request, fields: Fields) -> str:
        session, now = request.path_params["session"], self._gateway.now()
        await self._gateway.store.call(lambda store: store.exclude(session, now=now))
        return f"/ui/sessions/{quote(session)}"

    async def _include(self, request: Request, fields: Fields) -> str:
        session = request.path_params["session"]
        await self._gateway.store.call(lambda store: store.include(session))
        return f"/ui/sessions/{quote(session)}"
