"""The judge's HTTP JSON: a chat request out, an answer or a complaint in."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeGuard

import orjson

from afterwit.core.errors import JudgeRefused, JudgeUnavailable
from afterwit.core.judging import Answer
from afterwit.core.message import Message
from afterwit.core.surrogates import without_halves

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
