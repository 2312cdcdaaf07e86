"""HTTP to a model server. Every fault becomes one of our errors, with the server's own message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import orjson

from afterwit.engines.port import CLOSED
from afterwit.errors import AfterwitError, EngineError, EngineUnavailable, NobodyAnswers

CONNECT_S = 5.0
RETRY_S = LEAST_TRY_S = 1.0
LONGEST_MESSAGE = 500
"""Characters of a server's message that are passed on."""
DEAD = "EngineCore encountered an issue"
"""vLLM's answer once its engine has died."""
DATA = b"data:"
LAST = b"[DONE]"

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """A whole answer, of any status."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is not JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None

    @property
    def message(self) -> str:
        """The server's message: the text of an error in any of the usual forms, else the body."""
        found = self.json
        while isinstance(found, Mapping):
            found = next(
                (found[key] for key in ("error", "detail", "error_message", "message") if found.get(key)),
                None,
            )
        text = found if isinstance(found, str) else self.body.decode(errors="replace")
        return " ".join(text.split())[:LONGEST_MESSAGE]


class Refused(EngineError):
    """The server answered with an error."""

    def __init__(self, path: str, answer: HttpAnswer) -> None:
        super().__init__(f"the server refused {path} with HTTP {answer.status}: {answer.message}")
        self.answer = answer


class ServerFailed(Refused):
    """The server answered with a 5xx error: it may be healthy, or dying."""


class ServerClient:
    """One server. Make it inside the event loop that uses it; `close` it there.

    Every method raises EngineUnavailable if the server does not answer, breaks off, or answers 502, 503 or
    504; ServerFailed for any other status from 500 on, and Refused for any other than 200.
    """

    def __init__(self, url: str, *, key: str | None, silence_s: float, reuses: bool = True) -> None:
        """`silence_s`: seconds without a byte after which the server counts as gone. `reuses`: a connection
        serves many requests; not with a server that closes it as it likes."""
        self.url = url.rstrip("/")
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s),
            # the gateway bounds its requests itself
            connector=aiohttp.TCPConnector(limit=0, force_close=not reuses),
            read_bufsize=1 << 20,
        )

    async def get(self, path: str, *, within_s: float | None = None) -> HttpAnswer:
        """The answer to a GET; `within_s` bounds the whole request."""
        return _checked(path, await self._answer("GET", path, None, within_s))

    async def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, within_s: float | None = None
    ) -> HttpAnswer:
        """The answer to a POST of JSON; `within_s` bounds the whole request."""
        return _checked(path, await self._answer("POST", path, body, within_s))

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> HttpAnswer:
        """As `get` and `post`, but returns an answer of any status, to probe the server's features."""
        try:
            return _checked(path, await self._answer(method, path, body, None))
        except Refused as error:
            return error.answer

    async def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None, within_s: float | None
    ) -> HttpAnswer:
        data = None if body is None else orjson.dumps(body)
        more: dict[str, Any] = {} if within_s is None else {"timeout": aiohttp.ClientTimeout(total=within_s)}
        try:
            async with self._session.request(method, self.url + path, data=data, **more) as response:
                return HttpAnswer(status=response.status, body=await response.read())
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            raise self._unreachable(error) from error

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[list[Any], None]:
        """The JSON of the `data:` events of a streamed answer, in lists that arrived together.

        Closing the generator closes the connection.
        """

        def parsed(lines: Sequence[bytes]) -> list[Any]:
            found = (line[len(DATA) :].strip() for line in lines if line.startswith(DATA))
            return [orjson.loads(data) for data in found if data != LAST]

        try:
            async with self._session.post(self.url + path, data=orjson.dumps(body)) as response:
                if response.status != 200:
                    _checked(path, HttpAnswer(status=response.status, body=await response.read()))
                begun = b""
                async for read in response.content.iter_any():
                    *lines, begun = (begun + read).split(b"\n")
                    if events := parsed(lines):
                        yield events
                if events := parsed([begun]):
                    yield events
        except (aiohttp.ClientError, OSError, RuntimeError, orjson.JSONDecodeError) as error:
            raise self._unreachable(error) from error

    async def close(self) -> None:
        """End every request; waiting ones get EngineUnavailable."""
        await self._session.close()

    def _unreachable(self, error: Exception) -> EngineUnavailable:
        if self._session.closed:
            return EngineUnavailable(CLOSED)
        if isinstance(error, TimeoutError):
            return EngineUnavailable(f"the server at {self.url} did not answer in time")
        return EngineUnavailable(
            f"the server at {self.url} cannot be reached: {error or type(error).__name__}"
        )


def _checked(path: str, answer: HttpAnswer) -> HttpAnswer:
    if answer.status == 200:
        return answer
    if answer.status in (502, 503, 504):
        raise EngineUnavailable(f"the server cannot serve now (HTTP {answer.status}): {answer.message}")
    raise ServerFailed(path, answer) if answer.status >= 500 else Refused(path, answer)


def failed(path: str, error: Mapping[str, Any]) -> EngineError:
    """The error for a fault that ends a streamed answer."""
    code, message = error.get("code"), str(error.get("message"))
    if isinstance(code, int) and code >= 500:
        return ServerFailed(path, HttpAnswer(status=code, body=message.encode()))
    return EngineError(f"the server failed in the middle of a response: {message}")


@asynccontextmanager
async def server_faults(check: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Around calls of a server: EngineUnavailable if it cannot serve after a fault of its own.

    An answer in an unknown form is an EngineError. The process that answers outlives the one that computes by
    a few seconds. `check` raises if the server is not fit.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise EngineError("the server answered in an unknown form") from error
    except EngineError as error:
        if not any(isinstance(each, ServerFailed) for each in (error, error.__cause__)):
            raise
        if DEAD in str(error):
            raise EngineUnavailable(f"the server's engine died: {error}") from error
        try:
            await check()
        except AfterwitError as found:
            raise EngineUnavailable(f"{error}; then {found}") from error
        raise


async def answered(client: ServerClient, *, label: str, patience_s: float) -> None:
    """Return once `/health` is answered. NobodyAnswers if no server does within `patience_s` seconds.

    `label` is the kind of server in messages. Each try lasts at least `LEAST_TRY_S`: a shorter one would
    hide why the one before it failed.
    """
    now = asyncio.get_running_loop().time
    until = now() + patience_s
    logged = False
    while True:
        try:
            await client.get("/health", within_s=max(until - now(), LEAST_TRY_S))
            return
        except EngineUnavailable as error:
            if until - now() <= RETRY_S:
                raise NobodyAnswers(
                    f"no {label} server answered at {client.url} within {patience_s:g} s ({error}): start "
                    "it, let `afterwit up` start one, or correct engine.url"
                ) from error
            if not logged:
                log.info("waiting up to %g s for a %s server: %s", patience_s, label, error)
            logged = True
            await asyncio.sleep(RETRY_S)


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
