"""Many conversations at once with the gateway's application, called without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Generic, TypeVar, cast

from starlette.types import ASGIApp, Message

from afterwit.demo.people import Ask, Script, ServedMessage, request_body
from afterwit.demo.world import World

T = TypeVar("T")
PATH = "/v1/chat/completions"
FEEDBACK = "/v1/feedback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(Generic[T]):
    """A script to be played. Its name seeds all its draws."""

    script: Script[T]
    name: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One world's people at one gateway."""

    app: ASGIApp
    world: World

    async def play(self, conversations: Sequence[Conversation[T]]) -> list[T]:
        """Play all at the same time, to their ends, and return their results in order."""
        return list(await asyncio.gather(*map(self._play, conversations)))

    async def rate(self, turn: str, thumb: str, *, source: str) -> None:
        """Explicit feedback on a turn: `up` or `down`."""
        body = {"response_id": f"chatcmpl-{turn}", "thumb": thumb}
        await _post(self.app, body, named(source), path=FEEDBACK)

    async def _play(self, one: Conversation[T]) -> T:
        answers = 0
        try:
            ask = next(one.script)
            while True:
                answer = await self._answer(ask, one, seed=Random(f"{one.name} {answers}").getrandbits(63))
                answers += 1
                ask = one.script.send(answer)
        except StopIteration as ended:
            return cast(T, ended.value)

    async def _answer(self, ask: Ask, one: Conversation[Any], *, seed: int) -> ServedMessage:
        # the last answer is not read, but its request carries the person's reaction to the one before
        body = request_body(self.world.setting, replace(ask, max_tokens=1) if ask.last else ask)
        completion = await _post(self.app, body | {"seed": seed}, one.headers)
        said = completion["choices"][0]["message"]
        shown = {name: said[name] for name in ("role", "content", "tool_calls") if name in said}
        return ServedMessage(message=shown, turn=completion["id"].removeprefix("chatcmpl-"))


def named(source: str) -> dict[str, str]:
    """The headers of a client with the key of this name, which is the source of its words."""
    return {"Authorization": f"Bearer {source}"}


async def _post(
    app: ASGIApp, body: Mapping[str, Any], headers: Mapping[str, str], *, path: str = PATH
) -> dict[str, Any]:
    """The JSON of a 200. Raises RuntimeError for any other answer."""
    sent_headers = {"host": "localhost", "content-type": "application/json", **headers}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent_headers.items()],
        "client": ("127.0.0.1", 1),
    }
    sent = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    received: list[Message] = []

    async def receive() -> Message:
        if not sent:
            await asyncio.Event().wait()  # the client stays
        return sent.pop()

    async def send(message: Message) -> None:
        received.append(message)

    await app(scope, receive, send)
    answer = b"".join(message.get("body", b"") for message in received)
    if received[0]["status"] != 200:
        raise RuntimeError(f"the gateway answered {received[0]['status']}: {answer.decode()}")
    return cast(dict[str, Any], json.loads(answer))
