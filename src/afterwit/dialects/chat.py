"""The dialect of OpenAI's chat completions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from afterwit.dialects import sse
from afterwit.dialects.dialect import Dialect, Encoder
from afterwit.dialects.fields import (
    as_arguments,
    as_list,
    as_object,
    as_text,
    flag,
    integer,
    shown,
    storable,
    text,
    wrong_value,
)
from afterwit.dialects.openai import (
    custom_arguments,
    error_form,
    logprob_objects,
    parse_form,
    parse_top_logprobs,
    text_of,
)
from afterwit.dialects.request import Field, ModelRequest, RequestLimits, ToolChoice
from afterwit.dialects.response import (
    CallDelta,
    ChoiceDelta,
    ChoiceEnd,
    ParsedCall,
    ReasoningDelta,
    ResponseEvent,
    ResponseHead,
    SentCalls,
    TextDelta,
    TokenLogprob,
    Usage,
)
from afterwit.dialects.sampling import parse_sampling, parse_template_args
from afterwit.errors import RequestError
from afterwit.message import ROLES, Conversation, Message, ToolCall


def parse_request(body: Any, limits: RequestLimits) -> ModelRequest:
    """Read a request's JSON. Whatever is malformed raises RequestError 400, naming the field."""
    data = as_object(body, "the body")
    messages, prefill = parse_begun(data, limits)
    tool_choice, required_tool, tools = parse_tool_choice(
        data.get("tool_choice"), parse_tools(data.get("tools"), limits.max_tools)
    )
    conversation = Conversation(
        messages=messages,
        tools=tools,
        template_args=parse_template_args(data.get("chat_template_kwargs")),
    )
    return ModelRequest(
        model=text(data, "model"),
        conversation=conversation,
        sampling=parse_sampling(data, limits, lengths=LENGTHS),
        choices=integer(data, "n", low=1, high=limits.max_choices) or 1,
        stream=flag(data, "stream"),
        include_usage=_include_usage(data.get("stream_options")),
        tool_choice=tool_choice,
        required_tool=required_tool,
        parallel_calls=flag(data, "parallel_tool_calls", True),
        form=parse_form(data.get("response_format"), Field.FORMAT, nested=True),
        prefill=prefill,
        logprobs=flag(data, "logprobs"),
        top_logprobs=_top_logprobs(data),
    )


def encoder(request: ModelRequest, head: ResponseHead) -> Encoder:
    """The encoder that the request asks for."""
    return StreamEncoder(request, head) if request.stream else BodyEncoder(request, head)


def error_body(error: RequestError) -> dict[str, Any]:
    """A response's body, or a stream's last object."""
    return error_form(error, PARAMS)


OPENAI_CHAT = Dialect(
    name="openai_chat",
    path="/v1/chat/completions",
    parse=parse_request,
    encoder=encoder,
    error_body=error_body,
)

LENGTHS = ("max_completion_tokens", "max_tokens")
"""Fields that limit the tokens of the response, the newer name first."""


def _include_usage(value: Any) -> bool:
    return value is not None and flag(as_object(value, "stream_options"), "include_usage")


def _top_logprobs(data: Mapping[str, Any]) -> int:
    count = parse_top_logprobs(data)
    if count and not flag(data, "logprobs"):
        raise wrong_value("top_logprobs", "needs logprobs to be true")
    return count


def parse_messages(value: Any, limits: RequestLimits) -> tuple[Message, ...]:
    """The `messages` of a request. Raises RequestError 400 for whatever is not a message."""
    written = as_list(value, "messages", most=limits.max_messages)
    if not written:
        raise wrong_value("messages", "must hold at least one message")
    messages = tuple(_message(message, f"messages[{index}]") for index, message in enumerate(written))
    calls = sum(len(message.tool_calls) for message in messages)
    if calls > limits.max_calls:
        raise wrong_value("messages", f"hold {calls} tool calls, more than {limits.max_calls}")
    return messages


def parse_begun(data: Mapping[str, Any], limits: RequestLimits) -> tuple[tuple[Message, ...], str]:
    """The messages before the response, and how the response begins.

    It begins with the last message if the client says `continue_final_message`, as to vLLM and SGLang.
    """
    messages = parse_messages(data.get("messages"), limits)
    if not flag(data, "continue_final_message"):
        return messages, ""
    if flag(data, "add_generation_prompt"):
        raise wrong_value("continue_final_message", "contradicts add_generation_prompt")
    *before, last = messages
    if last.role != "assistant" or last.tool_calls or not before:
        message = "needs a last message of the assistant, without tool calls, to go on from"
        raise wrong_value("continue_final_message", message)
    return tuple(before), last.content or ""


def _message(value: Any, where: str) -> Message:
    data = as_object(value, where)
    role = as_text(data.get("role"), f"{where}.role")
    role = "tool" if role == "function" else role
    if role not in ROLES:
        raise wrong_value(f"{where}.role", f"must be one of {', '.join(ROLES)}, not {shown(role)}")
    assistant = role == "assistant"
    return Message(
        role=role,
        content=text_of(data.get("content"), f"{where}.content"),
        reasoning=_reasoning(data, where) if assistant else None,
        tool_calls=_calls(data.get("tool_calls"), f"{where}.tool_calls") if assistant else (),
        tool_call_id=_optional(data, "tool_call_id", where) if role == "tool" else None,
        name=_optional(data, "name", where),
    )


def _reasoning(data: Mapping[str, Any], where: str) -> str | None:
    for name in ("reasoning_content", "reasoning"):
        if data.get(name) is not None:
            return as_text(data[name], f"{where}.{name}")
    return None


def _calls(value: Any, where: str) -> tuple[ToolCall, ...]:
    if value is None:
        return ()
    return tuple(_call(call, f"{where}[{index}]") for index, call in enumerate(as_list(value, where)))


def _call(value: Any, where: str) -> ToolCall:
    data = as_object(value, where)
    if data.get("type") == "custom":
        return _custom_call(data, where)
    function = as_object(data.get("function"), f"{where}.function")
    return ToolCall(
        id=_optional(data, "id", where) or "",
        name=_optional(function, "name", f"{where}.function") or "",
        arguments=as_arguments(function.get("arguments"), f"{where}.function.arguments"),
    )


def _custom_call(data: Mapping[str, Any], where: str) -> ToolCall:
    custom = as_object(data.get("custom"), f"{where}.custom")
    return ToolCall(
        id=_optional(data, "id", where) or "",
        name=as_text(custom.get("name"), f"{where}.custom.name"),
        arguments=custom_arguments(custom.get("input"), f"{where}.custom.input"),
    )


def _optional(data: Mapping[str, Any], name: str, where: str) -> str | None:
    value = data.get(name)
    return None if value is None else as_text(value, f"{where}.{name}")


Tools = tuple[Mapping[str, Any], ...]


def parse_tools(value: Any, most: int) -> Tools:
    """The functions among `tools`, of which there may be `most`, as they were sent: templates print them."""
    tools = [] if value is None else as_list(value, "tools", most=most)
    read = (_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools))
    return tuple(tool for tool in read if tool is not None)


def _tool(value: Any, where: str) -> Mapping[str, Any] | None:
    tool = as_object(value, where)
    if as_text(tool.get("type"), f"{where}.type") != "function":
        return None
    name = as_text(as_object(tool.get("function"), f"{where}.function").get("name"), f"{where}.function.name")
    if not name:
        raise wrong_value(f"{where}.function.name", "must not be empty")
    storable(tool, where)
    return tool


def parse_tool_choice(value: Any, tools: Tools) -> tuple[ToolChoice, str | None, Tools]:
    """Whether a call is asked for, the name of the tool if one is named, and the tools that may be called."""
    if value is None:
        return ToolChoice.AUTO, None, tools
    if isinstance(value, str):
        return _word(value, tools), None, tools
    choice = as_object(value, "tool_choice")
    kind = choice.get("type", "function")
    if kind == "allowed_tools":
        listed = as_object(choice.get(kind), f"tool_choice.{kind}")
        allowed = _allowed(listed, tools)
        return _word(listed.get("mode", ToolChoice.AUTO), allowed), None, allowed
    if kind != "function":
        message = f"tool_choice asks for a tool of type {shown(str(kind))}: this server calls functions only."
        raise RequestError(400, "unsupported_tool_choice", message, param="tool_choice")
    return ToolChoice.REQUIRED, _known(choice, tools, "tool_choice"), tools


def _word(value: Any, tools: Tools) -> ToolChoice:
    word = as_text(value, "tool_choice")
    if word not in set(ToolChoice):
        raise wrong_value("tool_choice", f"must be auto, none, required or a function, not {shown(word)}")
    if word == ToolChoice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "asks for a call, but there are no functions among the tools")
    return ToolChoice(word)


def _allowed(choice: Mapping[str, Any], tools: Tools) -> Tools:
    """The functions that the choice names."""
    where = "tool_choice.allowed_tools.tools"
    entries = [as_object(entry, where) for entry in as_list(choice.get("tools"), where)]
    names = {_known(entry, tools, where) for entry in entries if entry.get("type") == "function"}
    return tuple(tool for tool in tools if tool["function"]["name"] in names)


def _known(choice: Mapping[str, Any], tools: Tools, where: str) -> str:
    function = as_object(choice.get("function"), f"{where}.function")
    name = as_text(function.get("name"), f"{where}.function.name")
    if name not in {tool["function"]["name"] for tool in tools}:
        raise wrong_value(where, f"names {shown(name)}, which is not among the tools")
    return name


DONE = b"data: [DONE]\n\n"
"""The end of a stream."""


class StreamEncoder:
    """Server-sent events, one chunk for each delta."""

    content_type = sse.CONTENT_TYPE
    heartbeat = sse.COMMENT

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._head = head
        self._choices = request.choices
        self._include_usage = request.include_usage
        self._envelope = Envelope(head=head, null_usage=request.include_usage)
        self._begun = False
        self._calls: defaultdict[int, SentCalls] = defaultdict(SentCalls)
        """By choice."""
        self._frames: dict[tuple[int, int], sse.Frame] = {}
        """Of chunks that bring content alone, by choice and version."""

    def begin(self, version: int) -> bytes:
        self._begun = True
        return self._sent(version, [delta_choice(choice, role_delta()) for choice in range(self._choices)])

    def delta(self, delta: ChoiceDelta) -> bytes:
        if len(delta.events) == 1 and self._begun and not delta.logprobs:
            event = delta.events[0]
            if type(event) is TextDelta:
                return self._frame(delta.choice, delta.version).around(event.text)
        return self._chunks(delta)

    def _frame(self, choice: int, version: int) -> sse.Frame:
        frame = self._frames.get((choice, version))
        if frame is None:
            content = delta_choice(choice, text_delta(TextDelta(text="")))
            chunk = self._envelope.chunk(version, [content])
            frame = self._frames[choice, version] = sse.Frame.of(sse.event(chunk), "content")
        return frame

    def _chunks(self, delta: ChoiceDelta) -> bytes:
        begun = b"" if self._begun else self.begin(delta.version)
        choices = []
        logprobs = delta.logprobs
        for event in delta.events:
            for added in self._added(delta.choice, event):
                choices.append(delta_choice(delta.choice, added, logprobs=logprobs))
                logprobs = ()
        return begun + self._sent(delta.version, choices)

    def _sent(self, version: int, choices: Sequence[JsonObject]) -> bytes:
        return b"".join(sse.event(self._envelope.chunk(version, [choice])) for choice in choices)

    def end_choice(self, end: ChoiceEnd) -> bytes:
        choice = delta_choice(end.choice, {}, finish=end.finish, logprobs=end.logprobs)
        return sse.event(self._envelope.chunk(end.version, [choice]))

    def end(self, usage: Usage, version: int) -> bytes:
        if not self._include_usage:
            return DONE
        return sse.event(self._envelope.chunk(version, [], usage)) + DONE

    def fail(self, error: RequestError) -> bytes:
        return sse.event(error_body(error))

    def _added(self, choice: int, event: ResponseEvent) -> Iterable[JsonObject]:
        if isinstance(event, TextDelta | ReasoningDelta):
            return (text_delta(event),)
        return call_deltas(event, self._head.call_id(choice, event.index), self._calls[choice])


class BodyEncoder:
    """One JSON body, when everything is complete."""

    content_type = "application/json"
    heartbeat = b""

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._envelope = Envelope(head=head)
        self._asked_logprobs = request.logprobs
        self._logprobs: dict[int, list[bytes]] = defaultdict(list)
        """As JSON at once: of all alternatives of many choices the objects take ten times as much, and to
        write them all at the end would stop others for seconds."""
        self._ended: list[ChoiceEnd] = []

    def begin(self, version: int) -> bytes:
        return b""

    def delta(self, delta: ChoiceDelta) -> bytes:
        self._logprobs[delta.choice] += map(orjson.dumps, logprob_objects(delta.logprobs))
        return b""

    def end_choice(self, end: ChoiceEnd) -> bytes:
        self._logprobs[end.choice] += map(orjson.dumps, logprob_objects(end.logprobs))
        self._ended.append(end)
        return b""

    def end(self, usage: Usage, version: int) -> bytes:
        choices = [
            whole_choice(end, self._logprobs[end.choice] if self._asked_logprobs else None)
            for end in sorted(self._ended, key=lambda end: end.choice)
        ]
        return orjson.dumps(self._envelope.body(version, choices, usage))

    def fail(self, error: RequestError) -> bytes:
        return orjson.dumps(error_body(error))


JsonObject = dict[str, Any]
ID_PREFIX = "chatcmpl-"

PIECE = 64
"""Characters of one piece of a tool call's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What every object of one response repeats."""

    head: ResponseHead
    null_usage: bool = False
    """Every chunk has a `usage` field, null until the last: the client asked for usage in its stream."""

    def body(self, version: int, choices: Sequence[JsonObject], usage: Usage) -> JsonObject:
        """The whole response."""
        return self._object("chat.completion", version, choices, usage)

    def chunk(self, version: int, choices: Sequence[JsonObject], usage: Usage | None = None) -> JsonObject:
        """One object of a stream."""
        return self._object("chat.completion.chunk", version, choices, usage)

    def _object(
        self, kind: str, version: int, choices: Sequence[JsonObject], usage: Usage | None
    ) -> JsonObject:
        data: JsonObject = {
            "id": ID_PREFIX + self.head.turn,
            "object": kind,
            "created": self.head.created,
            "model": self.head.model,
            "system_fingerprint": f"v{version}",
            "choices": choices,
        }
        if usage is not None:
            data["usage"] = _usage(usage)
        elif self.null_usage:
            data["usage"] = None
        return data


def delta_choice(
    choice: int, delta: JsonObject, *, finish: str | None = None, logprobs: Sequence[TokenLogprob] = ()
) -> JsonObject:
    """A chunk's only choice."""
    return {
        "index": choice,
        "delta": delta,
        "logprobs": _logprobs(logprobs) if logprobs else None,
        "finish_reason": finish,
    }


def whole_choice(end: ChoiceEnd, logprobs: Sequence[bytes] | None) -> JsonObject:
    """A body's choice; `logprobs`, each as JSON, is None unless the client asked for them."""
    content = None if logprobs is None else orjson.Fragment(b"[" + b",".join(logprobs) + b"]")
    return {
        "index": end.choice,
        "message": end.message.to_dict(),
        "logprobs": None if content is None else {"content": content, "refusal": None},
        "finish_reason": end.finish,
    }


def role_delta() -> JsonObject:
    """The first delta of a choice."""
    return {"role": "assistant", "content": ""}


def text_delta(event: TextDelta | ReasoningDelta) -> JsonObject:
    """What text adds to the message."""
    return {"content" if isinstance(event, TextDelta) else "reasoning_content": event.text}


def call_deltas(event: CallDelta | ParsedCall, call_id: str, sent: SentCalls) -> Iterator[JsonObject]:
    """What a call adds to the message: its id and name once, and its arguments in pieces."""
    begins, arguments = sent.add(event)
    if begins:
        function = {"name": event.name, "arguments": ""}
        yield _call_chunk({"index": event.index, "id": call_id, "type": "function", "function": function})
    for start in range(0, len(arguments), PIECE):
        yield _call_chunk({"index": event.index, "function": {"arguments": arguments[start : start + PIECE]}})


def _call_chunk(call: JsonObject) -> JsonObject:
    return {"tool_calls": [call]}


def _usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    }


def _logprobs(tokens: Sequence[TokenLogprob]) -> JsonObject:
    return {"content": logprob_objects(tokens), "refusal": None}


PARAMS: dict[str | None, str] = {Field.STOP_IDS: "stop_token_ids"}
"""What clients call a field whose name here differs."""
