"""Content of a message, and of a `custom` call: a string, or what clients send in place of one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from afterwit.dialects.fields import (
    ANY_OBJECT,
    as_object,
    as_text,
    flag,
    integer,
    omitted,
    parse_schema,
    unknown_form,
    wrong_type,
)
from afterwit.dialects.request import JsonForm
from afterwit.dialects.response import TokenLogprob
from afterwit.errors import RequestError

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of content parts that are text, and the field that holds it."""

_REASONING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})


def text_of(value: Any, where: str) -> str | None:
    """The text of a content, a string or an array of parts; each part is a line of it. None: no content."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(where, "a string or an array of parts", value)
    parts = [_part(part, f"{where}[{index}]") for index, part in enumerate(value)]
    return "\n".join(part for part in parts if part is not None)


def _part(value: Any, where: str) -> str | None:
    """A part's text, None for reasoning: templates get it from its own field, if at all.

    Anything else becomes a note that it was left out.
    """
    if isinstance(value, str):
        return value
    part = as_object(value, where)
    kind = as_text(part.get("type"), f"{where}.type")
    if kind in _REASONING_PARTS:
        return None
    if kind not in _TEXT_PARTS:
        return omitted(kind)
    field = _TEXT_PARTS[kind]
    if field in part and part[field] is None:
        return ""
    return as_text(part.get(field), f"{where}.{field}")


def custom_arguments(value: Any, where: str) -> str:
    """The free text that a call of a `custom` tool has in place of arguments, as the one argument `input`."""
    return json.dumps({"input": "" if value is None else as_text(value, where)}, ensure_ascii=False)


def error_type(status: int) -> str:
    """OpenAI's class of an error; `code` says what exactly is wrong."""
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def error_form(error: RequestError, params: Mapping[str | None, str]) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`. `params` names the fields that clients call otherwise."""
    return {
        "error": {
            "message": error.message,
            "type": error_type(error.status),
            "param": params.get(error.param, error.param),
            "code": error.code,
        }
    }


MOST_ALTERNATIVES = 20


def parse_top_logprobs(data: Mapping[str, Any]) -> int:
    """How many alternatives of each token are asked for. Raises RequestError 400."""
    return integer(data, "top_logprobs", low=0, high=MOST_ALTERNATIVES) or 0


def logprob_objects(tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """One object for each token."""
    return [{**_object(token), "top_logprobs": list(map(_object, token.top))} for token in tokens]


def _object(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.logprob, "bytes": list(token.text.encode())}


def parse_form(value: Any, where: str, *, nested: bool) -> JsonForm | None:
    """The form; None for free text. `nested`: a schema is in a field `json_schema` of its own, as in chat."""
    if value is None:
        return None
    form = as_object(value, where)
    kind = form.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return ANY_OBJECT
    if kind != "json_schema":
        raise unknown_form(kind, where)
    if nested:
        where = f"{where}.json_schema"
        form = as_object(form.get("json_schema"), where)
    return parse_schema(form.get("schema"), f"{where}.schema", strict=flag(form, "strict"))
