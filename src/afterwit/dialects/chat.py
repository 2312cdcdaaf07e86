"""OpenAI's Chat Completions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from afterwit.dialects import sse
from afterwit.dialects.dialect import BodyEncoder, Dialect, Encoder, JsonObject
from afterwit.dialects.fields import (
    Tool,
    as_arguments,
    as_list,
    as_object,
    as_text,
    flag,
    integer,
    parse_tools,
    shown,
    storable,
    text,
    wrong_value,
)
from afterwit.dialects.json_form import parse_form
from afterwit.dialects.openai import (
    custom_arguments,
    error_form,
    logprob_objects,
    parse_tool_choice,
    parse_top_logprobs,
    text_of,
)
from afterwit.dialects.request import Field, ModelRequest, RequestLimits
from afterwit.dialects.response import (
    ChoiceDelta,
    ChoiceEnd,
    ReasoningDelta,
    ResponseEvent,
    ResponseHead,
    SentCalls,
    TextDelta,
    TokenLogprob,
    Usage,
    in_pieces,
)
from afterwit.dialects.sampling import parse_sampling, parse_template_args
from afterwit.errors import RequestError
from afterwit.message import ROLES, Conversation, Message, ToolCall

DONE = b"data: [DONE]\n\n"
"""The end of a stream."""

_CHUNK = "chat.completion.chunk"


def parse_request(body: Any, limits: RequestLimits) -> ModelRequest:
    """Read a request's JSON. Raises RequestError 400 with the name of the malformed field."""
    data = as_object(body, "the body")
    messages, prefill = _parse_begun(data, limits)
    tool_choice, required_tool, tools = parse_tool_choice(
        data.get("tool_choice"), parse_functions(data.get("tools"), limits.max_tools), nested=True
    )
    stream_options = data.get("stream_options")
    logprobs, top_logprobs = flag(data, "logprobs"), parse_top_logprobs(data)
    if top_logprobs and not logprobs:
        raise wrong_value("top_logprobs", "needs logprobs to be true")
    return ModelRequest(
        model=text(data, "model"),
        conversation=Conversation(
            messages=messages,
            tools=tools,
            template_args=parse_template_args(data.get("chat_template_kwargs")),
        ),
        sampling=parse_sampling(data, limits, lengths=("max_completion_tokens", "max_tokens")),
        choices=integer(data, "n", low=1, high=limits.max_choices) or 1,
        stream=flag(data, "stream"),
        include_usage=stream_options is not None
        and flag(as_object(stream_options, "stream_options"), "include_usage"),
        tool_choice=tool_choice,
        required_tool=required_tool,
        parallel_calls=flag(data, "parallel_tool_calls", True),
        form=parse_form(data.get("response_format"), Field.FORMAT, nested=True),
        prefill=prefill,
        logprobs=logprobs,
        top_logprobs=top_logprobs,
    )


def _parse_begun(data: Mapping[str, Any], limits: RequestLimits) -> tuple[tuple[Message, ...], str]:
    """The messages before the response, and the response's prefill.

    The last message is the prefill if the client sets `continue_final_message`, as for vLLM and SGLang.
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


def parse_messages(value: Any, limits: RequestLimits) -> tuple[Message, ...]:
    """The `messages` of a request. Raises RequestError 400 for a malformed message."""
    written = as_list(value, "messages", most=limits.max_messages)
    if not written:
        raise wrong_value("messages", "must hold at least one message")
    messages = tuple(_message(message, f"messages[{index}]") for index, message in enumerate(written))
    calls = sum(len(message.tool_calls) for message in messages)
    if calls > limits.max_calls:
        raise wrong_value("messages", f"hold {calls} tool calls, more than {limits.max_calls}")
    return messages


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
        reasoning=_optional(data, "reasoning_content", where, "reasoning") if assistant else None,
        tool_calls=_calls(data.get("tool_calls"), f"{where}.tool_calls") if assistant else (),
        tool_call_id=_optional(data, "tool_call_id", where) if role == "tool" else None,
        name=_optional(data, "name", where),
    )


def _calls(value: Any, where: str) -> tuple[ToolCall, ...]:
    calls = [] if value is None else as_list(value, where)
    return tuple(_call(call, f"{where}[{index}]") for index, call in enumerate(calls))


def _call(value: Any, where: str) -> ToolCall:
    data = as_object(value, where)
    id = _optional(data, "id", where) or ""
    if data.get("type") == "custom":
        where = f"{where}.custom"
        custom = as_object(data.get("custom"), where)
        arguments = custom_arguments(custom.get("input"), f"{where}.input")
        return ToolCall(id=id, name=as_text(custom.get("name"), f"{where}.name"), arguments=arguments)
    where = f"{where}.function"
    function = as_object(data.get("function"), where)
    arguments = as_arguments(function.get("arguments"), f"{where}.arguments")
    return ToolCall(id=id, name=_optional(function, "name", where) or "", arguments=arguments)


def _optional(data: Mapping[str, Any], name: str, where: str, *older: str) -> str | None:
    """The text of a field, or of its older name; None if neither is set."""
    found = next((key for key in (name, *older) if data.get(key) is not None), None)
    return None if found is None else as_text(data[found], f"{where}.{found}")


def parse_functions(value: Any, most: int) -> tuple[Tool, ...]:
    """The functions among at most `most` tools, unchanged, because templates print them."""
    return parse_tools(value, most, _function)


def _function(tool: Tool, where: str) -> Tool | None:
    if as_text(tool.get("type"), f"{where}.type") != "function":
        return None
    name = as_text(as_object(tool.get("function"), f"{where}.function").get("name"), f"{where}.function.name")
    if not name:
        raise wrong_value(f"{where}.function.name", "must not be empty")
    storable(tool, where)
    return tool


class StreamEncoder:
    """Server-sent events, one chunk for each delta."""

    content_type = sse.CONTENT_TYPE
    heartbeat = sse.COMMENT

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._head = head
        self._choices = request.choices
        self._include_usage = request.include_usage
        self._null_usage: JsonObject = {"usage": None} if request.include_usage else {}
        """Every chunk but the last has a null `usage` if the client asked for usage."""
        self._begun = False
        self._calls: defaultdict[int, SentCalls] = defaultdict(SentCalls)
        """By choice."""
        self._frames: dict[tuple[int, int], sse.Frame] = {}
        """Frames of chunks with content alone, by choice and version."""

    def begin(self, version: int) -> bytes:
        self._begun = True
        role = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(version, choice, role) for choice in range(self._choices))

    def delta(self, delta: ChoiceDelta) -> bytes:
        if len(delta.events) == 1 and self._begun and not delta.logprobs:
            event = delta.events[0]
            if type(event) is TextDelta:
                return self._frame(delta.choice, delta.version).around(event.text)
        sent = [b"" if self._begun else self.begin(delta.version)]
        logprobs = delta.logprobs
        for event in delta.events:
            for added in self._added(delta.choice, event):
                sent.append(self._chunk(delta.version, delta.choice, added, logprobs=logprobs))
                logprobs = ()
        return b"".join(sent)

    def _frame(self, choice: int, version: int) -> sse.Frame:
        frame = self._frames.get((choice, version))
        if frame is None:
            frame = sse.Frame.of(self._chunk(version, choice, {"content": ""}), "content")
            self._frames[choice, version] = frame
        return frame

    def _added(self, choice: int, event: ResponseEvent) -> Iterator[JsonObject]:
        """The deltas of an event: a call sends its id and name once, and its arguments in pieces."""
        if isinstance(event, TextDelta | ReasoningDelta):
            yield {"content" if isinstance(event, TextDelta) else "reasoning_content": event.text}
            return
        begins, arguments = self._calls[choice].add(event)
        if begins:
            function = {"name": event.name, "arguments": ""}
            id = self._head.call_id(choice, event.index)
            yield {"tool_calls": [{"index": event.index, "id": id, "type": "function", "function": function}]}
        for piece in in_pieces(arguments):
            yield {"tool_calls": [{"index": event.index, "function": {"arguments": piece}}]}

    def end_choice(self, end: ChoiceEnd) -> bytes:
        return self._chunk(end.version, end.choice, {}, finish=end.finish, logprobs=end.logprobs)

    def end(self, usage: Usage, version: int) -> bytes:
        if not self._include_usage:
            return DONE
        return sse.event(_response(self._head, _CHUNK, version, [], usage=_usage(usage))) + DONE

    def fail(self, error: RequestError) -> bytes:
        return sse.event(error_body(error))

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
        return sse.event(_response(self._head, _CHUNK, version, [changed], **self._null_usage))


class WholeEncoder(BodyEncoder):
    """One JSON body for all choices."""

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        super().__init__(error_body)
        self._head = head
        self._asked_logprobs = request.logprobs
        self._logprobs: dict[int, list[bytes]] = defaultdict(list)
        """Each as JSON: the objects take ten times the memory, and writing those of many choices at the end
        would block the event loop for seconds."""
        self._ended: list[ChoiceEnd] = []

    def delta(self, delta: ChoiceDelta) -> bytes:
        self._logprobs[delta.choice] += map(orjson.dumps, logprob_objects(delta.logprobs))
        return b""

    def end_choice(self, end: ChoiceEnd) -> bytes:
        self._logprobs[end.choice] += map(orjson.dumps, logprob_objects(end.logprobs))
        self._ended.append(end)
        return b""

    def end(self, usage: Usage, version: int) -> bytes:
        choices = [self._choice(end) for end in sorted(self._ended, key=lambda end: end.choice)]
        body = _response(self._head, "chat.completion", version, choices, usage=_usage(usage))
        return orjson.dumps(body)

    def _choice(self, end: ChoiceEnd) -> JsonObject:
        logprobs = None
        if self._asked_logprobs:
            content = orjson.Fragment(b"[" + b",".join(self._logprobs[end.choice]) + b"]")
            logprobs = {"content": content, "refusal": None}
        return {
            "index": end.choice,
            "message": end.message.to_dict(),
            "logprobs": logprobs,
            "finish_reason": end.finish,
        }


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
    }


def encoder(request: ModelRequest, head: ResponseHead) -> Encoder:
    return StreamEncoder(request, head) if request.stream else WholeEncoder(request, head)


def error_body(error: RequestError) -> JsonObject:
    return error_form(error, {})


OPENAI_CHAT = Dialect(
    name="openai_chat",
    path="/v1/chat/completions",
    parse=parse_request,
    encoder=encoder,
    error_body=error_body,
)
