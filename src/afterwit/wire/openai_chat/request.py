"""The body of `POST /v1/chat/completions`, parsed once. Unknown fields are ignored, never refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from afterwit.core.errors import RequestError
from afterwit.core.message import Conversation
from afterwit.core.turn import Sampling
from afterwit.wire.fields import (
    as_list,
    as_number,
    as_object,
    as_text,
    flag,
    integer,
    number,
    shallow,
    text,
    wrong_type,
    wrong_value,
)
from afterwit.wire.openai_chat.messages import parse_messages, parse_tools, tool_name

_MANY = 2**31 - 1
_RESERVED_ARGS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "strftime_now"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one request may ask for."""

    max_messages: int = 4096
    max_choices: int = 16
    max_stops: int = 32
    max_biases: int = 1024
    default_max_tokens: int = 8192
    """Tokens of a response whose client names no limit: the published recipes' longest response."""


class Choice(StrEnum):
    """Whether the response calls a tool."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a client asks for. `sampling.max_tokens` is not yet cut to what fits the context."""

    model: str | None
    conversation: Conversation
    sampling: Sampling
    n: int
    stream: bool
    include_usage: bool
    tool_choice: Choice
    tool_named: str | None
    """The tool that must be called; None: any."""
    parallel_calls: bool
    logprobs: bool
    top_logprobs: int


def parse_chat(body: Any, limits: Limits) -> ChatRequest:
    """Read a request's JSON. Whatever is malformed raises RequestError(400, ...), naming the field."""
    data = as_object(body, "the body")
    _refuse_formats(data)
    conversation = Conversation(
        messages=parse_messages(data.get("messages"), limits.max_messages),
        tools=parse_tools(data.get("tools")),
        template_args=_template_args(data.get("chat_template_kwargs")),
    )
    choice, named = _tool_choice(data.get("tool_choice"), {tool_name(tool) for tool in conversation.tools})
    stream = flag(data, "stream")
    options = data.get("stream_options")
    return ChatRequest(
        model=text(data, "model"),
        conversation=conversation,
        sampling=_sampling(data, limits),
        n=integer(data, "n", low=1, high=limits.max_choices) or 1,
        stream=stream,
        include_usage=options is not None and flag(as_object(options, "stream_options"), "include_usage"),
        tool_choice=choice,
        tool_named=named,
        parallel_calls=flag(data, "parallel_tool_calls", True),
        logprobs=flag(data, "logprobs"),
        top_logprobs=integer(data, "top_logprobs", low=0, high=20) or 0,
    )


def _sampling(data: Mapping[str, Any], limits: Limits) -> Sampling:
    asked = [integer(data, name, low=1, high=_MANY) for name in ("max_completion_tokens", "max_tokens")]
    top_k = integer(data, "top_k", low=-1, high=_MANY) or 0
    top_p = number(data, "top_p", 1.0, low=0.0, high=1.0)
    if top_p == 0.0:
        raise wrong_value("top_p", "must be more than 0")
    repetition = number(data, "repetition_penalty", 1.0, low=0.0, high=10.0)
    if repetition == 0.0:
        raise wrong_value("repetition_penalty", "must be more than 0")
    return Sampling(
        max_tokens=next((limit for limit in asked if limit is not None), limits.default_max_tokens),
        temperature=number(data, "temperature", 1.0, low=0.0, high=2.0),
        top_p=top_p,
        top_k=max(top_k, 0),
        min_p=number(data, "min_p", 0.0, low=0.0, high=1.0),
        seed=integer(data, "seed", low=-(2**63), high=2**63 - 1),
        stop=_stops(data.get("stop"), limits.max_stops),
        stop_ids=_stop_ids(data.get("stop_token_ids"), limits.max_stops),
        presence_penalty=number(data, "presence_penalty", 0.0, low=-2.0, high=2.0),
        frequency_penalty=number(data, "frequency_penalty", 0.0, low=-2.0, high=2.0),
        repetition_penalty=repetition,
        logit_bias=_biases(data.get("logit_bias"), limits.max_biases),
        ignore_eos=flag(data, "ignore_eos"),
    )


def _stops(value: Any, most: int) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else as_list(value, "stop")
    if len(stops) > most:
        raise wrong_value("stop", f"holds {len(stops)} strings, more than {most}")
    return tuple(stop for stop in (as_text(stop, "stop") for stop in stops) if stop)


def _stop_ids(value: Any, most: int) -> tuple[int, ...]:
    ids = [] if value is None else as_list(value, "stop_token_ids")
    if len(ids) > most:
        raise wrong_value("stop_token_ids", f"holds {len(ids)} ids, more than {most}")
    return tuple(_token_id(index, "stop_token_ids") for index in ids)


def _biases(value: Any, most: int) -> tuple[tuple[int, float], ...]:
    biases = {} if value is None else as_object(value, "logit_bias")
    if len(biases) > most:
        raise wrong_value("logit_bias", f"holds {len(biases)} tokens, more than {most}")
    return tuple(
        (_token_id(index, "logit_bias"), as_number(bias, "logit_bias", low=-100.0, high=100.0))
        for index, bias in biases.items()
    )


def _token_id(value: Any, param: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(param, "token ids", value)
    if not 0 <= value <= _MANY:
        raise wrong_value(param, f"names token {value}, which no vocabulary has")
    return value


def _tool_choice(value: Any, tools: set[str]) -> tuple[Choice, str | None]:
    """Whether a call is asked for, and which."""
    if value is None:
        return Choice.AUTO, None
    if isinstance(value, str):
        if value not in set(Choice):
            raise wrong_value("tool_choice", f"must be auto, none, required or a function, not {value!r}")
        choice, named = Choice(value), None
    else:
        function = as_object(as_object(value, "tool_choice").get("function"), "tool_choice.function")
        choice, named = Choice.REQUIRED, as_text(function.get("name"), "tool_choice.function.name")
    if choice is Choice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "asks for a call, but there are no tools")
    if named is not None and named not in tools:
        raise wrong_value("tool_choice", f"names {named!r}, which is not among the tools")
    return choice, named


def _template_args(value: Any) -> Mapping[str, Any]:
    arguments = {} if value is None else as_object(value, "chat_template_kwargs")
    taken = sorted(_RESERVED_ARGS.intersection(arguments))
    if taken:
        raise wrong_value("chat_template_kwargs", f"may not set {taken[0]}")
    shallow(arguments, "chat_template_kwargs")
    return arguments


def _refuse_formats(data: Mapping[str, Any]) -> None:
    """Refuse what would have to be promised and cannot be kept: a response format other than text."""
    value = data.get("response_format")
    kind = "text" if value is None else as_object(value, "response_format").get("type")
    if kind != "text":
        raise RequestError(
            400,
            "unsupported_response_format",
            f"response_format {kind!r} is not served",
            param="response_format",
        )
