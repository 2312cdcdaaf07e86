"""A client's request in the common form, and the parameters that all dialects read the same way.

Malformed fields raise RequestError 400.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from afterwit.dialects.fields import (
    as_list,
    as_number,
    as_object,
    as_text,
    flag,
    integer,
    number,
    shown,
    storable,
    wrong_type,
    wrong_value,
)
from afterwit.errors import RequestError
from afterwit.turn import Conversation, Sampling

LARGEST = 2**31 - 1
"""The largest token count or token id that every engine can hold."""

NO_LIMIT = -1
"""A limit of tokens as clients of LM Studio and llama.cpp send it, if there is none."""

LEAST_TOP_P = 1e-6
"""In place of 0, which OpenAI accepts and engines refuse: the most likely token alone is kept."""

WEAKEST_REPETITION_PENALTY = 0.01
"""Logits are divided by it: smaller ones leave the range of half precision."""

RESERVED_ARGUMENTS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "strftime_now"})
"""Template variables that the renderer sets itself."""

LARGEST_SCHEMA = 131_072
"""Bytes. OpenAI accepts 120,000 characters of names and values."""

LONGEST_TEXT = 4096
"""Characters of one literal text or pattern in a schema. For each token, the engine computes what may come
next, in time that grows with the length of a text and with the square of a pattern's length."""

NOTES = frozenset({"title", "description", "$comment", "default", "examples"})
"""Keywords that do not constrain the response. A property may have the same name: its schema is an object."""


EFFORT = "reasoning_effort"

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""How much a model may reason, as clients ask for it; the last one is that of Hermes and Codex."""
UNSET_EFFORT = "default"
"""Groq's word for what the model does by itself."""


class Field(StrEnum):
    """A field of a request, as a RequestError names it in `param`.

    Only the parser knows the dialect. Later code names a Field, which the dialect's error body translates.
    """

    MODEL = "model"
    MESSAGES = "messages"
    TOOL_CHOICE = "tool_choice"
    LOGIT_BIAS = "logit_bias"
    STOP_IDS = "stop_ids"
    FORMAT = "response_format"
    TOP_LOGPROBS = "top_logprobs"


class ToolChoice(StrEnum):
    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonForm:
    """The form that the content of a response must have."""

    schema: str
    """A JSON schema, as JSON text."""
    strict: bool
    """Refuse a schema that cannot be enforced in full, instead of enforcing what is possible."""


ANY_OBJECT = JsonForm(schema='{"type":"object"}', strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    max_choices: int
    default_max_tokens: int
    """Tokens of a response when the client names no limit."""
    max_messages: int = 4096
    max_calls: int = 16_384
    """Tool calls of all messages together. A call costs the template much more than a character."""
    max_parts: int = 32_768
    """Parts of the content of all messages together, if a dialect reads each by itself."""
    max_tools: int = 4096
    max_stops: int = 32
    max_stop_length: int = 1024
    """Characters of one stop string."""
    max_biases: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    model: str | None
    conversation: Conversation
    sampling: Sampling
    """As the client asked; `max_tokens` is not yet cut to what fits the context."""
    choices: int = 1
    stream: bool = False
    include_usage: bool = False
    """The stream should end with its token counts. A dialect that always sends them ignores this."""
    tool_choice: ToolChoice = ToolChoice.AUTO
    required_tool: str | None = None
    """The tool that must be called; None: any."""
    parallel_calls: bool = True
    show_reasoning: bool = True
    """Send the reasoning to the client. Only dialects in which clients request it read this."""
    form: JsonForm | None = None
    """The form of the content; None: free text. It does not apply to reasoning and tool calls."""
    prefill: str = ""
    """The beginning of the content: the response continues it without repeating it."""
    logprobs: bool = False
    """Return the log-prob of each sampled token."""
    top_logprobs: int = 0
    """Return this many of the most likely tokens with each, if log-probs are returned."""
    follows: str | None = None
    """The previous turn, if the client names it."""
    echoed: Mapping[str, Any] = field(default_factory=dict)
    """The fields that the response repeats. Only the dialect's own encoder reads this."""
    unserved_tool: str | None = None
    """The type of the first tool that is not a function, so that the model does not get it; None: there is
    none."""


def parse_sampling(
    data: Mapping[str, Any], limits: RequestLimits, *, lengths: Sequence[str], stops: str = "stop"
) -> Sampling:
    """The request's sampling parameters.

    `lengths` are the fields that limit the tokens of the response: the first one that is set counts. `stops`
    is the field of the stop strings.
    """
    found = [integer(data, name, low=1, high=LARGEST) for name in lengths if data.get(name) != NO_LIMIT]
    asked = next(filter(None, found), None)
    stop_ids, biases = data.get("stop_token_ids"), data.get("logit_bias")
    stop_ids = [] if stop_ids is None else as_list(stop_ids, "stop_token_ids", most=limits.max_stops)
    biases = {} if biases is None else as_object(biases, "logit_bias")
    if len(biases) > limits.max_biases:
        raise wrong_value("logit_bias", f"holds {len(biases)} tokens, more than {limits.max_biases}")
    return Sampling(
        max_tokens=asked or limits.default_max_tokens,
        limit_asked=asked is not None and asked < limits.default_max_tokens,
        temperature=number(data, "temperature", 1.0, low=0.0, high=2.0),
        top_p=max(number(data, "top_p", 1.0, low=0.0, high=1.0), LEAST_TOP_P),
        top_k=max(integer(data, "top_k", low=-1, high=LARGEST) or 0, 0),  # some clients send -1 for all
        min_p=number(data, "min_p", 0.0, low=0.0, high=1.0),
        seed=integer(data, "seed", low=-(2**63), high=2**63 - 1),
        stop=_stops(data.get(stops), stops, limits),
        stop_ids=tuple(_token_id(index, "stop_token_ids") for index in stop_ids),
        presence_penalty=number(data, "presence_penalty", 0.0, low=-2.0, high=2.0),
        frequency_penalty=number(data, "frequency_penalty", 0.0, low=-2.0, high=2.0),
        repetition_penalty=number(data, "repetition_penalty", 1.0, low=WEAKEST_REPETITION_PENALTY, high=10.0),
        logit_bias=tuple(
            (_token_id(index, "logit_bias"), as_number(bias, "logit_bias", low=-100.0, high=100.0))
            for index, bias in biases.items()
        ),
        ignore_eos=flag(data, "ignore_eos"),
    )


def _stops(value: Any, param: str, limits: RequestLimits) -> tuple[str, ...]:
    listed = [] if value is None else [value] if isinstance(value, str) else as_list(value, param)
    if len(listed) > limits.max_stops:
        raise wrong_value(param, f"holds {len(listed)} strings, more than {limits.max_stops}")
    stops = [as_text(stop, param) for stop in listed]
    longest = max(map(len, stops), default=0)
    if longest > limits.max_stop_length:
        message = f"holds a string of {longest} characters, more than {limits.max_stop_length}"
        raise wrong_value(param, message)
    return tuple(filter(None, stops))


def _token_id(value: Any, param: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(param, "token ids", value)
    if not 0 <= value <= LARGEST:
        raise wrong_value(param, f"names token {value}, which no vocabulary has")
    return value


def parse_template_args(value: Any, effort: Any = None, where: str = "reasoning_effort") -> Mapping[str, Any]:
    """The client's template variables, the effort of reasoning among them if it is in the field `where`.

    Raises RequestError 400 for variables that the renderer sets, and for an unknown effort.
    """
    arguments = {} if value is None else as_object(value, "chat_template_kwargs")
    if effort not in (None, UNSET_EFFORT):
        if as_text(effort, where) not in EFFORTS:
            raise wrong_value(where, f"must be one of {', '.join(EFFORTS)}, not {shown(effort)}")
        arguments = {EFFORT: effort, **arguments}
    taken = sorted(RESERVED_ARGUMENTS.intersection(arguments))
    if taken:
        raise wrong_value("chat_template_kwargs", f"may not set {taken[0]}")
    storable(arguments, "chat_template_kwargs")
    return arguments


def parse_form(value: Any, where: str) -> JsonForm | None:
    """The form; None for free text. The schema is in a field `json_schema` in chat, and directly in the form
    in the Responses API and for llama.cpp."""
    if value is None:
        return None
    form = as_object(value, where)
    kind = as_text(form.get("type"), f"{where}.type")
    if kind == "text":
        return None
    if kind == "json_object" and form.get("schema") is None:
        return ANY_OBJECT
    if kind not in ("json_object", "json_schema"):
        message = f"{where} {shown(kind)} is not served: ask for text, json_object or json_schema"
        raise RequestError(400, "unsupported_response_format", message, param=where)
    if kind == "json_schema" and form.get("json_schema") is not None:
        where = f"{where}.json_schema"
        form = as_object(form.get("json_schema"), where)
    return parse_schema(form.get("schema"), f"{where}.schema", strict=flag(form, "strict"))


def parse_schema(value: Any, where: str, *, strict: bool) -> JsonForm:
    """The form that a schema describes. Raises RequestError 400 if it is too large or not a schema."""
    schema = as_object(value, where)
    storable(schema, where)
    text = orjson.dumps(schema).decode()
    if len(text) > LARGEST_SCHEMA:
        raise wrong_value(where, f"has {len(text)} bytes, more than {LARGEST_SCHEMA}")
    longest = max(map(len, _texts(schema)), default=0)
    if longest > LONGEST_TEXT:
        raise wrong_value(where, f"holds a text of {longest} characters, more than {LONGEST_TEXT}")
    return JsonForm(schema=text, strict=strict)


def _texts(schema: Mapping[str, Any]) -> Iterator[str]:
    """The patterns, names and literal values of a schema, without its notes."""
    waiting: list[tuple[Any, bool]] = [(schema, False)]
    while waiting:
        value, literal = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting += ((each, literal) for each in value)
        elif isinstance(value, Mapping):
            yield from value
            for key, held in value.items():
                if literal or key not in NOTES or isinstance(held, Mapping):
                    waiting.append((held, literal or key in ("const", "enum")))
