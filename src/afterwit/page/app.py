"""The page's routes, and its buttons."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from afterwit.checkpoints.versions import Versions
from afterwit.checkpoints.versions import roll_back as restored
from afterwit.errors import AfterwitError, RequestError, StoreError, TurnNotFound
from afterwit.gateway.auth import Caller, Permission
from afterwit.gateway.context import Gateway
from afterwit.gateway.feedback import feedback_in, record_feedback
from afterwit.lifecycle import State
from afterwit.page import curves, html, lessons, lists, overview
from afterwit.page.access import Access, see
from afterwit.page.chat import Chat
from afterwit.page.lists import NotFound, View, number
from afterwit.store import AsyncStore, Store
from afterwit.version import Version

VIEWS: Mapping[str, tuple[str, View]] = {
    "/ui": ("lessons.html", lessons.home),
    "/ui/lessons/{lesson}": ("lessons.html", lessons.lesson),
    "/ui/chat": ("chat.html", lists.chat),
    "/ui/overview": ("overview.html", overview.overview),
    "/ui/sessions": ("sessions.html", lists.sessions),
    "/ui/sessions/{session:path}": ("session.html", lists.session),
    "/ui/turns": ("turns.html", lists.turns),
    "/ui/turns/{turn}": ("turn.html", lists.turn),
    "/ui/versions": ("versions.html", lists.versions),
    "/ui/versions/{version}": ("version.html", lists.version),
    "/ui/review": ("review.html", lists.review),
    "/ui/sources": ("sources.html", lists.sources),
    "/ui/judge": ("judge.html", lists.judge),
    "/ui/curves": ("curves.html", curves.curves),
}

PATIENCE_S = 5.0
"""Seconds that the page waits for the store."""
LONGEST_REASON = 200
"""Characters of a reason for a pause."""
TAUGHT = ("thumb", "hint", "correction")
"""Fields of the forms that teach a turn."""
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]

Fields = Mapping[str, str]
Action = Callable[[Request, Fields], Awaitable[str]]
"""Does what a button is for, and returns the address to show then. AfterwitError if nothing was changed."""
RollBack = Callable[[int], Awaitable[Version]]
"""Takes learning back to a version, and returns the version that was made.

Raises SettingError if there is nothing to return to, VersionDamaged and StoreError."""


async def roll_back(store: AsyncStore, versions: Versions, target: int, *, now: float) -> Version:
    """`RollBack` over a home. In a thread, because a version's files are verified before it is restored."""
    made = await asyncio.to_thread(restored, versions, target, now=now)
    await store.call(lambda store: store.commit_version(made, now=now))
    return made


class UserPage:
    """Everything below `/ui`. Needs the scope `read`; the buttons need `admin`."""

    def __init__(self, gateway: Gateway, roll_back: RollBack | None) -> None:
        """Without `roll_back` the page is read-only."""
        self._gateway, self._take_back, self._access = gateway, roll_back, Access(gateway)
        self._chat = Chat(gateway, self._access)

    def routes(self) -> list[Route]:
        """The last route answers for every other address, so that no one learns which exist."""
        buttons: dict[str, Action] = {
            "/ui/lessons/{lesson}/{order}": self._order,
            "/ui/learning/pause": self._pause,
            "/ui/learning/resume": self._resume,
            "/ui/versions/{version}/rollback": self._roll_back,
            "/ui/turns/{turn}/review": self._review,
            "/ui/turns/{turn}/feedback": self._feedback,
            "/ui/sessions/{session:path}/exclude": self._exclude,
            "/ui/sessions/{session:path}/include": self._include,
        }
        if self._take_back is None:
            buttons = {}
        return [
            Route("/ui/static/{name}", _static),
            Route("/ui/sign-in", self._access.sign_in, methods=["POST"]),
            Route("/ui/sign-out", self._access.sign_out, methods=["POST"]),
            Route("/ui/chat", self._chat.ask, methods=["POST"]),
            *(Route(path, self._done(act), methods=["POST"]) for path, act in buttons.items()),
            *(Route(path, self._shown(*view)) for path, view in VIEWS.items()),
            Route("/ui/{rest:path}", self._shown("message.html", _nothing), methods=METHODS),
        ]

    def _shown(self, template: str, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if (entered := self._access.enter(request)) is not None:
                return entered
            caller = self._access.caller(request)
            if caller is None:
                return self._access.sign_in_page(request)
            try:
                read = partial(view, request, self._gateway)
                found = await self._gateway.read(read, within_s=PATIENCE_S)
            except (NotFound, TurnNotFound) as error:
                if request.method in ("GET", "HEAD") and request.url.path.endswith("/"):
                    return see(quote(request.url.path.rstrip("/")))
                return await self._message(request, caller, 404, "There is nothing here", str(error))
            except StoreError as error:
                return await self._message(request, caller, 503, "The store does not answer", str(error))
            return await self._page(request, caller, template, found)

        return endpoint

    def _done(self, act: Action) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            caller = self._access.caller(request)
            if caller is None:
                return self._access.sign_in_page(request)
            try:
                fields = await self._access.form(request)
                caller.require(Permission.ADMIN)
                return see(await act(request, fields))
            except RequestError as error:
                title = "This was not done"
                return await self._message(request, caller, error.status, title, error.message)
            except AfterwitError as error:
                return await self._message(request, caller, 409, "Nothing was changed", str(error))

        return endpoint

    async def _message(
        self, request: Request, caller: Caller, status: int, title: str, words: str
    ) -> Response:
        facts = {"title": title, "words": words}
        return await self._page(request, caller, "message.html", facts, status=status)

    async def _page(
        self, request: Request, caller: Caller, template: str, found: Mapping[str, Any], *, status: int = 200
    ) -> Response:
        """Rendered in a thread, because a long response has thousands of tokens and streams go on."""
        facts = {
            "path": request.url.path,
            "form_token": self._access.form_token(request),
            "steers": caller.may(Permission.ADMIN) and self._take_back is not None,
            "chats": caller.may(Permission.CHAT),
            "signed_in": caller.name,
            "serving": self._gateway.engine.version,
            "model": self._gateway.engine.facts.model,
            **found,
        }
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(self._gateway.readers, html.rendered, template, facts)
        return html.html(text, status=status)

    async def _pause(self, request: Request, fields: Fields) -> str:
        words, now = fields.get("why", "").strip()[:LONGEST_REASON], self._gateway.now()
        await self._gateway.store.call(lambda store: store.pause(words, now=now))
        return "/ui/overview"

    async def _resume(self, request: Request, fields: Fields) -> str:
        await self._gateway.store.call(lambda store: store.resume())
        return "/ui/overview"

    async def _order(self, request: Request, fields: Fields) -> str:
        wanted, order = number(request.path_params["lesson"]), request.path_params["order"]
        if wanted is None or order not in lessons.DONE:
            raise RequestError(404, "unknown_lesson", "There is no such lesson.")
        work = partial(lessons.carry_out, order, wanted, fields, self._gateway)
        await self._gateway.store.call(work)
        return f"/ui/lessons/{wanted}?done={order}"

    async def _roll_back(self, request: Request, fields: Fields) -> str:
        target = number(request.path_params["version"])
        if target is None or self._take_back is None:
            raise RequestError(404, "unknown_version", "There is no such version.")
        made = await self._take_back(target)
        return f"/ui/versions?made={made.number}"

    async def _review(self, request: Request, fields: Fields) -> str:
        turn, now = request.path_params["turn"], self._gateway.now()
        accept = fields.get("accept") == "yes"
        found = await self._gateway.store.call(lambda store: store.review([turn], accept=accept, now=now))
        return f"/ui/review?outcome={found[turn].value}"

    async def _feedback(self, request: Request, fields: Fields) -> str:
        """Back to the turn, or to the conversation in which it was taught."""
        turn, session = request.path_params["turn"], fields.get("session")
        said = {name: words.replace("\r\n", "\n") for name, words in fields.items() if name in TAUGHT}
        feedback = feedback_in(said, reward_from=self._gateway.settings.reward_from)
        caller = self._access.caller(request)
        assert caller is not None  # `_done` admits no other
        state, trains = await record_feedback(self._gateway, caller, turn, feedback)
        place = f"/ui/sessions/{quote(session)}" if session else f"/ui/turns/{quote(turn)}"
        named = state.value.lower()
        if trains:
            named = "practised" if state is State.TRAINED else "judged"
        return f"{place}?given={named}#turn-{quote(turn)}"

    async def _exclude(self, request: Request, fields: Fields) -> str:
        session, now = request.path_params["session"], self._gateway.now()
        await self._gateway.store.call(lambda store: store.exclude(session, now=now))
        return f"/ui/sessions/{quote(session)}"

    async def _include(self, request: Request, fields: Fields) -> str:
        session = request.path_params["session"]
        await self._gateway.store.call(lambda store: store.include(session))
        return f"/ui/sessions/{quote(session)}"


async def _static(request: Request) -> Response:
    found = html.static_file(request.path_params["name"])
    if found is None:
        raise RequestError(404, "unknown_route", "The page has no such file.")
    content, kind = found
    headers = {**html.HEADERS, "cache-control": "public, max-age=31536000, immutable"}
    return Response(content, media_type=kind, headers=headers)


def _nothing(request: Request, gateway: Gateway, store: Store) -> Any:
    raise NotFound("The page has nothing at this address.")
