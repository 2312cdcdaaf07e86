"""An OpenAI-compatible endpoint, as the judge: it writes answers, or is read by its log-probs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp
import orjson

from afterwit.errors import JudgeRefused, JudgeUnavailable, QuestionTooLong, SettingError
from afterwit.judging.polarity import ASKED, LONGEST_READ, LogProbs, Subject, alternating
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.voting import Answer
from afterwit.ranges import key_from
from afterwit.text import without_halves
from afterwit.turn import Message

REFUSALS = frozenset({400, 413, 422})
"""Statuses that blame the question. Every other failure is the judge's, and the turn waits."""
TOO_LARGE = 413
_LENGTH = re.compile(
    rb"(?i)context[ _]?(?:length|size|window)|too (?:long|large|many tokens)|max_\w{0,32}tokens"
)
"""In a refusal, the words of servers for a prompt that does not fit."""
_UNSUPPORTED = re.compile(rb"(?i)unsupported|not support")
"""In a refusal of a field, such as `max_tokens`."""
LARGEST_ANSWER = 4 << 20
"""Bytes."""
PATH = "/chat/completions"
TOP = 20
"""Log-probs of an answer's first token; endpoints give no more."""
NATURAL_ENDS = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})
"""Finish reasons of an answer that ended by itself, as servers name them. A server may name none."""

CONTROL = re.compile(
    r"<(?=[|\uff5c][^<>\s]{1,64}[|\uff5c]>|/?(?:s|bos|eos|(?:start|end)_of_turn|turn\|)>|<SYS>>|/SYS>>|\|?turn\|?>)"
    r"|<(?=(?:seed:\w{1,32}|/?role|SPECIAL_\d{1,4}|extra_id_\d{1,4}|[se]op)>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|g?MASK|sMASK|BOS|EOS)\])"
    r"|\[(?=\|\w{1,32}\|\]|e~\[)|\](?=~!?b[\[\]])"
)
"""The first character of a control token of a known family. The judge's own template is not known here."""

_LONGEST_COMPLAINT = 160
_QUOTED = re.compile(r"[\[{\"`]|(?<!\w)'")


Read = TypeVar("Read")


class HttpJudge:
    """A chat endpoint at `url`. Make it inside the event loop that uses it; `close` it there."""

    replies = ASKED
    """An endpoint scores no text that it did not write."""

    def __init__(self, settings: JudgeSettings, environment: Mapping[str, str]) -> None:
        """SettingError if the key's environment variable is not set."""
        if settings.url is None or settings.model is None:
            raise SettingError("judge.url and judge.model are needed for a judge over HTTP")
        self._url, self._settings, self._model = settings.url.rstrip("/") + PATH, settings, settings.model
        headers = {"Content-Type": "application/json"}
        if (key := key_from(environment, settings.api_key_env, setting="judge.api_key_env")) is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._room = asyncio.Semaphore(settings.max_concurrency)
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=settings.timeout_s),
            connector=aiohttp.TCPConnector(limit=0),  # waiting for a connection would count as time
        )

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        return await self._asked(
            messages, answer_of, {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
        )

    async def first_words(self, messages: Sequence[Message], answers: Sequence[str]) -> LogProbs:
        """The log-prob of the first token of each of these answers; of one that is not among the likeliest,
        the least of theirs. JudgeRefused if the endpoint gives none."""
        fields = {"temperature": 0, "max_tokens": 1, "logprobs": True, "top_logprobs": TOP}
        return await self._asked(messages, lambda body: first_logprobs(body, answers), fields)

    async def logprobs(self, texts: Sequence[str], subject: Subject) -> list[LogProbs]:
        """Of each text, by the first words of the answers about it."""

        async def read(text: str) -> LogProbs:
            parts = [
                await self.first_words(alternating(ask.of(text[:LONGEST_READ])), ask.answers)
                for ask in subject.asks
            ]
            return tuple(value for part in parts for value in part)

        if not texts:
            return []
        first = await read(texts[0])  # an endpoint without log-probs gets one request
        return [first, *await asyncio.gather(*map(read, texts[1:]))]

    async def _asked(
        self, messages: Sequence[Message], read: Callable[[bytes], Read], fields: Mapping[str, Any]
    ) -> Read:
        body = {
            "model": self._model,
            "messages": [
                {**message.to_dict(), "content": CONTROL.sub(r"\g<0> ", message.content or "")}
                for message in messages
            ],
            **fields,
            **self._settings.body_extra,
        }
        try:
            payload = orjson.dumps({k: v for k, v in body.items() if k not in self._settings.body_omit})
        except TypeError as error:
            raise JudgeRefused("the question holds half a surrogate pair") from error
        answer = bytearray()
        try:
            async with (
                self._room,
                self._session.post(self._url, data=payload, allow_redirects=False) as response,
            ):
                async for chunk in response.content.iter_any():
                    answer += chunk
                    if len(answer) > LARGEST_ANSWER:
                        raise JudgeRefused(f"the judge's answer is over {LARGEST_ANSWER} bytes")
        except TimeoutError as error:
            raise JudgeUnavailable(f"the judge at {self._url} did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise JudgeUnavailable(f"the judge at {self._url} cannot be reached: {error}") from error
        if response.status == 200:
            try:
                return read(bytes(answer))
            except (JudgeUnavailable, JudgeRefused) as error:
                raise type(error)(f"the judge at {self._url}: {error}") from error
        words = complaint(bytes(answer))
        said = f"the judge at {self._url} answered HTTP {response.status}" + (f": {words}" if words else "")
        if response.status == TOO_LARGE or (response.status in REFUSALS and speaks_of_length(answer)):
            raise QuestionTooLong(said)
        if response.status in REFUSALS:
            raise JudgeRefused(said)
        # seconds; our own back-off replaces a date
        after = response.headers.get("Retry-After", "")
        seconds = float(after) if after.isascii() and after.strip().isdigit() else None
        raise JudgeUnavailable(said, retry_after_s=seconds)

    async def close(self) -> None:
        await self._session.close()


def answer_of(body: bytes) -> Answer:
    """The text of the first choice, without thinking that was sent separately. An empty text is an answer; if
    thinking took all the tokens, the answer did not finish.

    Raises JudgeUnavailable if this is not a chat answer, and JudgeRefused if its text is missing, as after a
    filter.
    """
    choice, content = _first_choice(body)
    reason = choice.get("finish_reason")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        content = "".join(text for text in texts if isinstance(text, str))
    if isinstance(content, str):
        return Answer(words=content, finished=reason is None or str(reason) in NATURAL_ENDS)
    if content is not None:
        raise JudgeUnavailable("its answer has no text")
    if reason == "length":
        return Answer(words="", finished=False)
    raise JudgeRefused("its answer has no text" + (f" ({reason})" if isinstance(reason, str) else ""))


def first_logprobs(body: bytes, answers: Sequence[str]) -> LogProbs:
    """The log-prob with which an answer begins as each of `answers`, by the likeliest first tokens.

    Raises JudgeUnavailable if this is not a chat answer, and JudgeRefused if it has no log-probs.
    """
    choice, _ = _first_choice(body)
    try:
        top = choice["logprobs"]["content"][0]["top_logprobs"]
        found = [(str(each["token"]).strip().casefold(), float(each["logprob"])) for each in top]
        least = min(value for _, value in found)
    except (LookupError, TypeError, ValueError) as error:
        raise JudgeRefused("it gives no log-probs of its answer's first token") from error
    begins = [
        [value for token, value in found if token and answer.casefold().startswith(token)]
        for answer in answers
    ]
    return tuple(max(values, default=least) for values in begins)


def _first_choice(body: bytes) -> tuple[Mapping[str, Any], Any]:
    """The first choice of a chat answer, and its content."""
    try:
        choice = orjson.loads(without_halves(body.decode("utf-8", "replace")))["choices"][0]
        return choice, choice["message"]["content"]
    except (orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise JudgeUnavailable("it does not answer as a chat endpoint does") from error


def speaks_of_length(body: bytes | bytearray) -> bool:
    """Whether a refusal is of a question that does not fit the context, in linear time: servers may quote the
    whole question."""
    return _LENGTH.search(body) is not None and _UNSUPPORTED.search(body) is None


def complaint(body: bytes) -> str:
    """An error's own words up to the first quotation: servers often quote the conversation."""
    try:
        data = orjson.loads(body)
        error = data.get("error", data)
        message = error if isinstance(error, str) else error.get("message")
    except (orjson.JSONDecodeError, AttributeError):
        return ""
    words = message if isinstance(message, str) else ""
    return _QUOTED.split(words, maxsplit=1)[0].strip()[:_LONGEST_COMPLAINT]
