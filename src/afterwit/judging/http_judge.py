"""An OpenAI-compatible endpoint, as the judge."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeGuard

import aiohttp
import orjson

from afterwit.errors import JudgeRefused, JudgeUnavailable, SettingError
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.voting import Answer
from afterwit.message import Message
from afterwit.text import without_halves

REFUSALS = frozenset({400, 413, 422})
"""Statuses that speak of the question. Every other failure speaks of the judge: the turn waits."""


LARGEST_ANSWER = 4 << 20
"""Bytes."""


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
        self._url = url.rstrip("/") + PATH
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
        """Raises SettingError if the key's environment variable is not set."""
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
    ) -> Answer:
        body = request_body(
            messages,
            model=self._model,
            temperature=temperature,
            max_tokens=max_tokens,
            seed=seed,
            extra=self._extra,
            omit=self._omit,
        )
        answer = await self._post(body)
        try:
            return answer_of(answer)
        except JudgeUnavailable as error:
            raise JudgeUnavailable(f"the judge at {self._url}: {error}") from error
        except JudgeRefused as error:
            raise JudgeRefused(f"the judge at {self._url}: {error}") from error

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
        words = complaint(answer)
        said = f"the judge at {self._url} answered HTTP {response.status}" + (f": {words}" if words else "")
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
    """The body. Raises JudgeRefused if it is larger than any answer."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > LARGEST_ANSWER:
            raise JudgeRefused(f"the judge's answer is over {LARGEST_ANSWER} bytes")
    return bytes(body)


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; None for a date, which our own back-off replaces."""
    return float(header) if header is not None and header.isascii() and header.strip().isdigit() else None


PATH = "/chat/completions"


NATURAL_ENDS = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})
"""Finish reasons of an answer that ended by itself, as servers name them; a server may name none."""


_LONGEST_COMPLAINT = 160


_QUOTED = re.compile(r"[\[{\"`]|(?<!\w)'")


def request_body(
    messages: Sequence[Message],
    *,
    model: str,
    temperature: float,
    max_tokens: int,
    seed: int,
    extra: Mapping[str, Any],
    omit: Collection[str],
) -> bytes:
    """The JSON of one question, with the fields of `extra` and without those of `omit`.

    Raises JudgeRefused if the question cannot be written as JSON.
    """
    body = {
        "model": model,
        "messages": [message.to_dict() for message in messages],
        "temperature": temperature,
        "max_tokens": max_tokens,
        "seed": seed,
    }
    try:
        return orjson.dumps({name: value for name, value in (body | dict(extra)).items() if name not in omit})
    except TypeError as error:
        raise JudgeRefused("the question holds half a surrogate pair") from error


def answer_of(body: bytes) -> Answer:
    """What the first choice says. An empty text is an answer; thinking that was sent apart is not part of it,
    and if it took all the tokens the answer did not come to its end.

    Raises JudgeUnavailable if this is not a chat answer, and JudgeRefused if its text is missing, as a filter
    leaves it.
    """
    try:
        choice = orjson.loads(without_halves(body.decode("utf-8", "replace")))["choices"][0]
        content, reason = choice["message"]["content"], choice.get("finish_reason")
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
        raise JudgeUnavailable("it does not answer as a chat endpoint does") from error
    if isinstance(content, list):
        content = "".join(
            filter(_is_text, (part.get("text") for part in content if isinstance(part, Mapping)))
        )
    if isinstance(content, str):
        return Answer(words=content, finished=reason is None or reason in NATURAL_ENDS)
    if content is not None:
        raise JudgeUnavailable("its answer has no text")
    if reason == "length":
        return Answer(words="", finished=False)
    raise JudgeRefused("its answer has no text" + (f" ({reason})" if isinstance(reason, str) else ""))


def complaint(body: bytes) -> str:
    """An error's own words up to the first quotation: servers like to quote the conversation back."""
    try:
        error = orjson.loads(body)
        error = error.get("error", error)
        message = error.get("message")
    except (orjson.JSONDecodeError, AttributeError):
        return ""
    if not isinstance(message, str):
        return ""
    return _QUOTED.split(message, maxsplit=1)[0].strip()[:_LONGEST_COMPLAINT]


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)
