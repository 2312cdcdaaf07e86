"""Who answers the judge's questions: an OpenAI-compatible endpoint, or the engine that serves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import aiohttp
import orjson

from afterwit.core.errors import EngineError, JudgeRefused, JudgeUnavailable, RequestError, SettingError
from afterwit.core.message import Conversation, Message
from afterwit.core.turn import Sampling
from afterwit.engines.port import Engine, Generate, Step, Weights
from afterwit.stages.judge.settings import JudgeSettings
from afterwit.wire.model_text.detokenize import Detokenizer
from afterwit.wire.model_text.reasoning import THINK, opens_reasoning
from afterwit.wire.model_text.render import Renderer

REFUSALS = frozenset({400, 413, 422})
"""Statuses that speak of the question. Every other failure speaks of the judge: the turn waits."""
LARGEST_ANSWER = 4 << 20
_QUOTED = re.compile(r"[\[{\"`]|(?<!\w)'")


class JudgeClient(Protocol):
    """Asks the judge once."""

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> str:
        """The answer's text. Raises JudgeUnavailable (later it may) or JudgeRefused (it never will)."""


class HttpJudge:
    """A chat endpoint at `url`. Make it inside the event loop that uses it; `close` it there."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        timeout_s: float,
        extra: Mapping[str, Any] | None = None,
        omit: Sequence[str] = (),
    ) -> None:
        self._url = url.rstrip("/") + "/chat/completions"
        self._model = model
        self._extra = dict(extra or {})
        self._omit = omit
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            connector=aiohttp.TCPConnector(limit=0),  # the judge stage bounds its calls itself
        )

    @classmethod
    def of(cls, settings: JudgeSettings, environment: Mapping[str, str]) -> HttpJudge:
        """Raises SettingError where the key's environment variable is not set."""
        if settings.url is None or settings.model is None:
            raise SettingError("judge.url and judge.model are needed for a judge over HTTP")
        return cls(
            settings.url,
            settings.model,
            key=_key(settings.api_key_env, environment),
            timeout_s=settings.timeout_s,
            extra=settings.body_extra,
            omit=settings.body_omit,
        )

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> str:
        body = {
            "model": self._model,
            "messages": [message.to_dict() for message in messages],
            "temperature": temperature,
            "max_tokens": max_tokens,
            "seed": seed,
        }
        wanted = {name: value for name, value in (body | self._extra).items() if name not in self._omit}
        try:
            payload = orjson.dumps(wanted)
        except TypeError as error:
            raise JudgeRefused("the question holds half a surrogate pair") from error
        return _text(await self._post(payload), self._url)

    async def _post(self, payload: bytes) -> bytes:
        try:
            async with self._session.post(self._url, data=payload, allow_redirects=False) as response:
                answer = await _read(response)
        except TimeoutError as error:
            raise JudgeUnavailable(f"the judge at {self._url} did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise JudgeUnavailable(f"the judge at {self._url} cannot be reached: {error}") from error
        if response.status == 200:
            return answer
        said = f"the judge at {self._url} answered HTTP {response.status}{_complaint(answer)}"
        if response.status in REFUSALS:
            raise JudgeRefused(said)
        raise JudgeUnavailable(said, retry_after_s=_seconds(response.headers.get("Retry-After")))

    async def close(self) -> None:
        await self._session.close()


def _key(variable: str | None, environment: Mapping[str, str]) -> str | None:
    if variable is None:
        return None
    if not environment.get(variable):
        raise SettingError(f"judge.api_key_env names the environment variable {variable}, which is not set")
    return environment[variable]


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body; JudgeUnavailable where it is larger than any answer."""
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > LARGEST_ANSWER:
            raise JudgeUnavailable(f"the judge's answer is over {LARGEST_ANSWER} bytes")
    return body


def _text(body: bytes, url: str) -> str:
    """What the first choice says. An empty answer is an answer; thinking sent apart is no part of it."""
    try:
        content = orjson.loads(body)["choices"][0]["message"]["content"]
    except (orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise JudgeUnavailable(f"the judge at {url} does not answer as a chat endpoint does") from error
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _complaint(body: bytes) -> str:
    """The error's own words up to the first quotation: servers like to quote the conversation back."""
    try:
        error = orjson.loads(body)
        error = error.get("error", error)
        message = str(error.get("message") or "")
    except (orjson.JSONDecodeError, AttributeError):
        return ""
    words = _QUOTED.split(message, maxsplit=1)[0].strip()[:160]
    return f": {words}" if words else ""


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; None for a date, which our own back-off replaces."""
    return float(header) if header is not None and header.strip().isdigit() else None


class EngineJudge:
    """The engine below the gateway: its calls are recorded nowhere and yield to people's requests."""

    def __init__(self, engine: Engine, renderer: Renderer, *, weights: Weights, thinking: bool) -> None:
        self._engine = engine
        self._renderer = renderer
        self._weights = weights
        self._thinking = thinking

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> str:
        prompt, request = await asyncio.to_thread(
            self.request, messages, temperature=temperature, max_tokens=max_tokens, seed=seed
        )
        try:
            async with aclosing(self._engine.generate(request)) as steps:
                return self.words(prompt, [step async for step in steps])
        except RequestError as error:
            raise JudgeRefused(f"the engine refuses the judge's question: {error}") from error
        except EngineError as error:
            raise JudgeUnavailable(f"the engine cannot judge: {error}") from error

    def request(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> tuple[str, Generate]:
        """The prompt and what the engine is asked. JudgeRefused where it does not render or fit."""
        prompt, ids = self._render(tuple(messages))
        room = self._engine.facts.context_length - len(ids)
        if room < 1:
            raise JudgeRefused(
                f"the judge's prompt has {len(ids)} tokens, its context {self._engine.facts.context_length}:"
                " lower judge.context_chars and the other lengths"
            )
        sampling = Sampling(max_tokens=min(max_tokens, room), temperature=temperature, seed=seed)
        return prompt, Generate(prompt_ids=ids, sampling=sampling, weights=self._weights, background=True)

    def words(self, prompt: str, steps: Iterable[Step]) -> str:
        """The answer's text. A template may leave a thought open, which the answer then only closes."""
        detokenizer = Detokenizer.of(self._renderer)
        answer = "".join([detokenizer.push(step.ids) for step in steps]) + detokenizer.finish()
        return THINK + answer if opens_reasoning(prompt) else answer

    def _render(self, messages: tuple[Message, ...]) -> tuple[str, tuple[int, ...]]:
        conversation = Conversation(messages=messages, template_args={"enable_thinking": self._thinking})
        try:
            return self._renderer.text(conversation), self._renderer.prompt_ids(conversation)
        except RequestError as error:
            raise JudgeRefused(f"the judge's prompt cannot be rendered: {error}") from error
