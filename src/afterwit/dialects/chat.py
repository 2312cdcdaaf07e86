"""OpenAI's Chat Completions: its requests, its responses, whole or as a stream of chunks, and its errors.

The Responses API shares its content, tool choices, log-probs and errors.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import orjson

from afterwit.byte_cache import exact
from afterwit.dialects.dialect import (
    COMMENT,
    EVENT_STREAM,
    ChoiceDelta,
    ChoiceEnd,
    Dialect,
    Encoder,
    Frame,
    JsonObject,
    ReasoningDelta,
    ResponseHead,
    SentCalls,
    TextDelta,
    TokenLogprob,
    Usage,
    data_event,
    in_pieces,
)
from afterwit.dialects.fields import (
    SPEAKERS,
    Item,
    Tool,
    as_arguments,
    as_items,
    as_list,
    as_name,
    as_object,
    as_result,
    as_role,
    as_text,
    flag,
    integer,
    omitted,
    parse_tools,
    shown,
    storable,
    text,
    wrong_type,
    wrong_value,
)
from afterwit.dialects.request import (
    Field,
    ModelRequest,
    RequestLimits,
    ToolChoice,
    parse_form,
    parse_sampling,
    parse_template_args,
)
from afterwit.errors import RequestError
from afterwit.turn import ROLES, Conversation, Message, ToolCall

DONE = b"data: [DONE]\n\n"

_CHUNK = "chat.completion.chunk"

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of content parts that are text, and the field that holds it."""

_REASONING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Without text: templates read reasoning from its own field."""

PRINTED = ("name", "description", "parameters")
"""Fields of a function that the model reads, in the order in which chat templates are taught."""

MOST_ALTERNATIVES = 20

FORMS = ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "regex")
"""Fields of vLLM and SGLang for the form of the content."""

OTHER_CHOICES = {"any": ToolChoice.REQUIRED.value}
"""Mistral's words for a choice of tools."""

RENAMED = {
    "functions": "tools",
    "function_call": "tool_choice",
    **dict.fromkeys(FORMS, Field.FORMAT.value),
}
"""Fields that a client relies on, those of 2023 among them, and the fields to send instead."""


def parse_request(body: Any, limits: RequestLimits) -> ModelRequest:
    """Read a request's JSON. Raises RequestError 400 with the name of the malformed field."""
    data = as_object(body, "the body")
    for name, successor in RENAMED.items():
        if data.get(name):
            message = f"{name} is not served: send {successor} instead."
            raise RequestError(400, "unsupported_parameter", message, param=name)
    messages, prefill = _parse_begun(data, limits)
    functions, unserved = parse_tools(data.get("tools"), limits.max_tools, as_function)
    tool_choice, required_tool, tools = parse_tool_choice(data.get("tool_choice"), functions)
    stream_options = data.get("stream_options")
    logprobs, top_logprobs = flag(data, "logprobs"), parse_top_logprobs(data)
    if top_logprobs and not logprobs:
        raise wrong_value("top_logprobs", "needs logprobs to be true")
    return ModelRequest(
        model=text(data, "model"),
        conversation=Conversation(
            messages=messages,
            tools=tools,
            template_args=parse_template_args(data.get("chat_template_kwargs"), data.get("reasoning_effort")),
        ),
        sampling=parse_sampling(data, limits, lengths=("max_completion_tokens", "max_tokens")),
        choices=integer(data, "n", low=1, high=limits.max_choices) or 1,
        stream=flag(data, "stream"),
        include_usage=stream_options is not None
        and flag(as_object(stream_options, "stream_options"), "include_usage"),
        tool_choice=tool_choice,
        required_tool=required_tool,
        parallel_calls=flag(data, "parallel_tool_calls", True),
        form=parse_form(data.get("response_format"), Field.FORMAT),
        prefill=prefill,
        logprobs=logprobs,
        top_logprobs=top_logprobs,
        unserved_tool=unserved,
    )


def _parse_begun(data: Mapping[str, Any], limits: RequestLimits) -> tuple[tuple[Message, ...], str]:
    """The messages before the response, and the response's prefill.

    The last message is the prefill if the client sets `continue_final_message`, as for vLLM and SGLang, or
    `prefix` in the message, as for DeepSeek and Mistral.
    """
    messages = parse_messages(data.get("messages"), limits)
    if flag(data, "continue_final_message"):
        asked = "continue_final_message"
    elif data["messages"][-1].get("prefix") is True:
        asked = "prefix"
    else:
        return messages, ""
    if flag(data, "add_generation_prompt"):
        raise wrong_value(asked, "contradicts add_generation_prompt")
    *before, last = messages
    if last.role != "assistant" or last.tool_calls or not before:
        message = "needs a last message of the assistant, without tool calls, to go on from"
        raise wrong_value(asked, message)
    return tuple(before), last.content or ""


def parse_messages(value: Any, limits: RequestLimits) -> tuple[Message, ...]:
    """The `messages` of a request. Raises RequestError 400 for a malformed message."""
    written = as_items(as_list(value, "messages", most=limits.max_messages), "messages")
    if not written:
        raise wrong_value("messages", "must hold at least one message")
    messages = tuple(map(_message, written))
    calls = sum(len(message.tool_calls) for message in messages)
    if calls > limits.max_calls:
        raise wrong_value("messages", f"hold {calls} tool calls, more than {limits.max_calls}")
    return messages


def _message(item: Item) -> Message:
    role = "tool" if item.get("role") == "function" else as_role(item, ROLES)
    assistant = role == "assistant"
    calls = as_items(item.get("tool_calls"), item.at("tool_calls")) if assistant else ()
    if assistant and item.get("function_call") is not None and not calls:  # the form of 2023
        calls = [Item({"function": item.get("function_call")}, item.where)]
    return Message(
        role=role,
        content=text_of(item, "content", required=role in SPEAKERS, result=role == "tool"),
        reasoning=item.optional("reasoning_content", "reasoning") if assistant else None,
        tool_calls=tuple(map(_call, calls)),
        tool_call_id=item.optional("tool_call_id") if role == "tool" else None,
        name=item.optional("name"),
    )


def _call(item: Item) -> ToolCall:
    id = item.optional("id") or ""
    if item.get("type") == "custom":
        custom = item.item("custom")
        return ToolCall(id=id, name=custom.text("name"), arguments=custom_arguments(custom))
    function = item.item("function")
    name = function.optional("name") or ""
    return ToolCall(id=id, name=name, arguments=as_arguments(function, "arguments"))


def as_function(tool: Item) -> Tool | None:
    """A function; None for other tools. It may be nested, as in chat, or not, as in the Responses API: Cursor
    sends the one form to the other API. A nested one is unchanged, because templates print it."""
    storable(tool.data, tool.where)
    nested = tool.get("function") is not None
    if as_text(tool.data.get("type", "function" if nested else None), tool.at("type")) != "function":
        return None
    if nested:
        as_name(tool.item("function"))
        return tool.data if "type" in tool.data else {"type": "function", **tool.data}
    as_name(tool)
    if tool.get("parameters") is not None:
        tool.item("parameters")
    function = {name: tool.get(name) for name in PRINTED if tool.get(name) is not None}
    return {"type": "function", "function": function}


def text_of(item: Item, name: str, *, required: bool = False, result: bool = False) -> str | None:
    """The text of a content: a string, or an array of parts, which are lines, but pieces in a reply: BeeAI
    makes one of each delta. None: no content, which must be written as null if it is required. `result`: it
    may be any value that a tool returned."""
    value, where = as_result(item, name) if result else item.get(name), item.at(name)
    if required and name not in item.data:
        raise wrong_value(where, "is missing")
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(where, "a string or an array of parts", value)
    texts = []
    for index, each in enumerate(value):
        if isinstance(each, str):
            texts.append(each)
            continue
        part = Item(each, f"{where}[{index}]")
        kind = part.text("type")
        if kind in _TEXT_PARTS:
            field = _TEXT_PARTS[kind]
            texts.append("" if part.get(field) is None and field in part.data else part.text(field))
        elif kind not in _REASONING_PARTS:
            texts.append(omitted(kind))
    return ("" if item.get("role") == "assistant" else "\n").join(texts)


def custom_arguments(item: Item) -> str:
    """The free text of a call of a `custom` tool, as the one argument `input`."""
    return json.dumps({"input": item.optional("input") or ""}, ensure_ascii=False)


def parse_tool_choice(value: Any, tools: Sequence[Tool]) -> tuple[ToolChoice, str | None, tuple[Tool, ...]]:
    """Whether the response calls a tool, the tool's name if one is required, and the allowed tools.

    In chat, `function` and `allowed_tools` are objects in a field of their type.
    """
    tools = tuple(tools)
    if value is None or isinstance(value, str):
        return _mode(ToolChoice.AUTO if value is None else value, tools), None, tools
    choice = Item(value, "tool_choice")
    kind = as_text(choice.data.get("type", "function"), "tool_choice.type")
    if kind in set(ToolChoice):  # Cursor's form
        return _mode(kind, tools), None, tools
    if kind == "function":
        return ToolChoice.REQUIRED, _known_name(choice, tools), tools
    if kind != "allowed_tools":
        message = f"tool_choice asks for a tool of type {shown(kind)}: this server calls functions only."
        raise RequestError(400, "unsupported_tool_choice", message, param="tool_choice")
    choice = choice.item(kind) if kind in choice.data else choice
    entries = [Item(one, choice.at("tools")) for one in as_list(choice.get("tools"), choice.at("tools"))]
    names = {_known_name(one, tools) for one in entries if one.get("type") == "function"}
    allowed = tuple(tool for tool in tools if tool["function"]["name"] in names)
    return _mode(choice.data.get("mode", ToolChoice.AUTO), allowed), None, allowed


def _mode(value: Any, tools: Sequence[Tool]) -> ToolChoice:
    mode = as_text(value, "tool_choice")
    mode = OTHER_CHOICES.get(mode, mode)
    if mode not in set(ToolChoice):
        raise wrong_value("tool_choice", f"must be auto, none, required or a function, not {shown(mode)}")
    if mode == ToolChoice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "asks for a call, but there are no functions among the tools")
    return ToolChoice(mode)


def _known_name(choice: Item, tools: Sequence[Tool]) -> str:
    name = (choice.item("function") if "function" in choice.data else choice).text("name")
    if name not in {tool["function"]["name"] for tool in tools}:
        raise wrong_value(choice.where, f"names {shown(name)}, which is not among the tools")
    return name


def parse_top_logprobs(data: Mapping[str, Any]) -> int:
    """The number of alternatives for each token. Raises RequestError 400."""
    return integer(data, "top_logprobs", low=0, high=MOST_ALTERNATIVES) or 0


class StreamEncoder:
    content_type = EVENT_STREAM
    heartbeat = COMMENT

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._head = head
        self._choices = request.choices
        self._include_usage = request.include_usage
        self._begun = False
        self._calls: defaultdict[int, SentCalls] = defaultdict(SentCalls)
        self._frames: dict[tuple[int, int], Frame] = {}
        """Frames of chunks with content alone, by choice and version."""

    def begin(self, version: int) -> bytes:
        self._begun = True
        role = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(version, choice, role) for choice in range(self._choices))

    def delta(self, delta: ChoiceDelta) -> bytes:
        choice, version, logprobs = delta.choice, delta.version, delta.logprobs
        if len(delta.events) == 1 and self._begun and not logprobs:
            event = delta.events[0]
            if type(event) is TextDelta:
                frame = self._frames.get((choice, version))
                if frame is None:
                    frame = Frame.of(self._chunk(version, choice, {"content": ""}))
                    self._frames[choice, version] = frame
                return frame.around(event.text)
        sent = [b"" if self._begun else self.begin(version)]
        for event in delta.events:
            if isinstance(event, TextDelta | ReasoningDelta):
                name = "content" if isinstance(event, TextDelta) else "reasoning_content"
                added: list[JsonObject] = [{name: event.text}]
            else:  # a call sends its id and name once, and its arguments in pieces
                begins, arguments = self._calls[choice].add(event)
                calls: list[JsonObject] = []
                if begins:
                    function = {"name": event.name, "arguments": ""}
                    id = self._head.call_id(choice, event.index)
                    calls.append({"index": event.index, "id": id, "type": "function", "function": function})
                calls += (
                    {"index": event.index, "function": {"arguments": piece}} for piece in in_pieces(arguments)
                )
                added = [{"tool_calls": [call]} for call in calls]
            for each in added:
                sent.append(self._chunk(version, choice, each, logprobs=logprobs))
                logprobs = ()
        return b"".join(sent)

    def end_choice(self, end: ChoiceEnd) -> bytes:
        return self._chunk(end.version, end.choice, {}, finish=end.finish, logprobs=end.logprobs)

    def end(self, usage: Usage, version: int) -> bytes:
        if not self._include_usage:
            return DONE
        return data_event(_response(self._head, _CHUNK, version, [], usage=_usage(usage))) + DONE

    def fail(self, error: RequestError) -> bytes:
        return data_event(error_body(error))

    def _chunk(
        self,
        version: int,
        choice: int,
        delta: JsonObject,
        *,
        finish: str | None = None,
        logprobs: Sequence[TokenLogprob] = (),
    ) -> bytes:
        changed = {
            "index": choice,
            "delta": delta,
            "logprobs": {"content": logprob_objects(logprobs), "refusal": None} if logprobs else None,
            "finish_reason": finish,
        }
        usage = {"usage": None} if self._include_usage else {}  # only the last chunk has one
        return data_event(_response(self._head, _CHUNK, version, [changed], **usage))


class WholeEncoder:
    content_type = "application/json"
    heartbeat = b""

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._head = head
        self._asked_logprobs = request.logprobs
        self._logprobs: dict[int, list[bytes]] = defaultdict(list)
        """Each as JSON: the objects take ten times the memory, and writing those of many choices at the end
        would block the event loop for seconds."""
        self._ended: list[ChoiceEnd] = []

    def begin(self, version: int) -> bytes:
        return b""

    def delta(self, delta: ChoiceDelta) -> bytes:
        self._logprobs[delta.choice] += (exact(orjson.dumps(one)) for one in logprob_objects(delta.logprobs))
        return b""

    def end_choice(self, end: ChoiceEnd) -> bytes:
        self._logprobs[end.choice] += (exact(orjson.dumps(one)) for one in logprob_objects(end.logprobs))
        self._ended.append(end)
        return b""

    def end(self, usage: Usage, version: int) -> bytes:
        choices = []
        for end in sorted(self._ended, key=lambda end: end.choice):
            content = orjson.Fragment(b"[" + b",".join(self._logprobs[end.choice]) + b"]")
            choices.append(
                {
                    "index": end.choice,
                    "message": end.message.to_dict(),
                    "logprobs": {"content": content, "refusal": None} if self._asked_logprobs else None,
                    "finish_reason": end.finish,
                }
            )
        return orjson.dumps(_response(self._head, "chat.completion", version, choices, usage=_usage(usage)))

    def fail(self, error: RequestError) -> bytes:
        return orjson.dumps(error_body(error))


def _response(
    head: ResponseHead, kind: str, version: int, choices: Sequence[JsonObject], **usage: Any
) -> JsonObject:
    return {
        "id": f"chatcmpl-{head.turn}",
        "object": kind,
        "created": head.created,
        "model": head.model,
        "system_fingerprint": f"v{version}",
        "choices": choices,
        **usage,
    }


def _usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def encoder(request: ModelRequest, head: ResponseHead) -> Encoder:
    return StreamEncoder(request, head) if request.stream else WholeEncoder(request, head)


def logprob_objects(tokens: Sequence[TokenLogprob]) -> list[JsonObject]:
    return [{**_logprob(token), "top_logprobs": list(map(_logprob, token.top))} for token in tokens]


def _logprob(token: TokenLogprob) -> JsonObject:
    text = token.data.decode(errors="replace")
    return {"token": text, "logprob": token.logprob, "bytes": list(token.data)}


def error_body(error: RequestError, params: Mapping[str | None, str] = MappingProxyType({})) -> JsonObject:
    """`{"error": {message, type, param, code}}`. `params`: the client's names of fields that differ."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    named: dict[str | None, str] = {Field.STOP_IDS: "stop_token_ids", **params}
    return {
        "error": {
            "message": error.message,
            "type": "rate_limit_error" if error.status == 429 else kind,
            "param": named.get(error.param, error.param),
            "code": error.code,
        }
    }


OPENAI_CHAT = Dialect(
    name="openai_chat",
    path="/v1/chat/completions",
    parse=parse_request,
    encoder=encoder,
    error_body=error_body,
)
