"""HTTP to a model server. Every fault becomes one of our errors, with the server's own words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import orjson

from afterwit.errors import EngineError, EngineUnavailable

CONNECT_S = 5.0
WORDS = 500
"""Characters of a server's own words that are passed on."""

DATA = b"data:"
LAST = b"[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer, of any status."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is none."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None

    @property
    def words(self) -> str:
        """What the server said, for people: an error's message in any of the usual forms, else its text."""
        found = self.json
        while isinstance(found, Mapping):
            found = next((found[key] for key in ("error", "detail", "message") if found.get(key)), None)
        text = found if isinstance(found, str) else self.body.decode(errors="replace")
        return " ".join(text.split())[:WORDS]


class Refused(EngineError):
    """The server answered with an error."""

    def __init__(self, path: str, answer: Answer) -> None:
        super().__init__(f"the server refused {path} with HTTP {answer.status}: {answer.words}")
        self.answer = answer


class ServerFailed(Refused):
    """The server answered with an error of its own: it may be there, or dying."""


class ServerClient:
    """One server. Make it inside the event loop that uses it; `close` it there.

    Every method raises EngineUnavailable if the server does not answer, breaks off, or says that it cannot
    serve now (502, 503, 504), ServerFailed for any other status from 500 on, and Refused for any other one
    but 200.
    """

    def __init__(self, url: str, *, key: str | None, silence_s: float) -> None:
        """`silence_s`: seconds without a byte after which the server counts as gone."""
        self.url = url.rstrip("/")
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s),
            connector=aiohttp.TCPConnector(limit=0),  # the gateway bounds its requests itself
            read_bufsize=1 << 20,
        )

    async def get(self, path: str, *, within_s: float | None = None) -> Answer:
        """The answer to a GET; `within_s` bounds the whole of it."""
        return await self._whole("GET", path, None, within_s)

    async def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, within_s: float | None = None
    ) -> Answer:
        """The answer to a POST of JSON; `within_s` bounds the whole of it."""
        return await self._whole("POST", path, body, within_s)

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """As `get` and `post`, but an answer of any status comes back: for probing what a server can do."""
        try:
            return await self._whole(method, path, body, None)
        except Refused as error:
            return error.answer

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[list[Any], None]:
        """The JSON of the `data:` events of a streamed answer, those together that came together.

        Closing it tells the server to stop.
        """
        try:
            async with self._session.post(self.url + path, data=orjson.dumps(body)) as response:
                if response.status != 200:
                    raise _fault(path, Answer(status=response.status, body=await response.read()))
                begun = b""
                async for read in response.content.iter_any():
                    *lines, begun = (begun + read).split(b"\n")
                    if events := _events(lines):
                        yield events
                if events := _events([begun]):
                    yield events
        except (aiohttp.ClientError, OSError, RuntimeError, orjson.JSONDecodeError) as error:
            raise self._unreachable(error) from error

    async def close(self) -> None:
        """End every request; those that wait get EngineUnavailable."""
        await self._session.close()

    async def _whole(
        self, method: str, path: str, body: Mapping[str, Any] | None, within_s: float | None
    ) -> Answer:
        data = None if body is None else orjson.dumps(body)
        more: dict[str, Any] = {} if within_s is None else {"timeout": aiohttp.ClientTimeout(total=within_s)}
        try:
            async with self._session.request(method, self.url + path, data=data, **more) as response:
                answer = Answer(status=response.status, body=await response.read())
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            raise self._unreachable(error) from error
        if answer.status != 200:
            raise _fault(path, answer)
        return answer

    def _unreachable(self, error: Exception) -> EngineUnavailable:
        if self._session.closed:
            return EngineUnavailable("The engine was closed.")
        if isinstance(error, TimeoutError):
            return EngineUnavailable(f"the server at {self.url} did not answer in time")
        return EngineUnavailable(
            f"the server at {self.url} cannot be reached: {error or type(error).__name__}"
        )


def _events(lines: Sequence[bytes]) -> list[Any]:
    """The JSON of each line with data."""
    return [
        orjson.loads(data)
        for line in lines
        if line.startswith(DATA) and (data := line[len(DATA) :].strip()) != LAST
    ]


def failed(path: str, error: Mapping[str, Any], words: str) -> EngineError:
    """The fault that a streamed answer ends with; `words` say so for people."""
    code = error.get("code")
    if isinstance(code, int) and code >= 500:
        return ServerFailed(path, Answer(status=code, body=str(error.get("message")).encode()))
    return EngineError(words)


def _fault(path: str, answer: Answer) -> EngineError:
    if answer.status in (502, 503, 504):
        return EngineUnavailable(f"the server cannot serve now (HTTP {answer.status}): {answer.words}")
    return ServerFailed(path, answer) if answer.status >= 500 else Refused(path, answer)


class Door:
    """Open at first. Each who closes it has a reason of their own, and it is open once none has one."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._changed = asyncio.Event()

    @property
    def reason(self) -> str | None:
        """Why it is closed; None while it is open."""
        return next(iter(self._reasons.values()), None)

    def closed_by(self, who: str) -> bool:
        """Whether it is closed for a reason of theirs."""
        return who in self._reasons

    def close(self, who: str, reason: str) -> None:
        """Let nobody through; replaces the reason that they had."""
        self._reasons[who] = reason

    def open(self, who: str) -> None:
        """Take their reason away."""
        self._reasons.pop(who, None)
        if not self._reasons:
            self._changed.set()
            self._changed = asyncio.Event()

    async def passed(self, patience_s: float) -> None:
        """Wait until it is open. EngineUnavailable with the reason after `patience_s` seconds."""
        try:
            async with asyncio.timeout(patience_s):
                while self._reasons:
                    await self._changed.wait()
        except TimeoutError as error:
            raise EngineUnavailable(f"{self.reason} (a request waited {patience_s:g} s)") from error


T = TypeVar("T")


async def gathered(calls: Sequence[Callable[[], Awaitable[T]]], at_once: int) -> list[T]:
    """The results in order. If a call fails, the others are cancelled and its error is raised."""
    room = asyncio.Semaphore(at_once)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with room:
            return await call()

    tasks = [asyncio.ensure_future(one(call)) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
