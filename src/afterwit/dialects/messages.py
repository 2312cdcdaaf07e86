"""Anthropic's Messages API: its requests, its responses, whole or as a stream of events, and its errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby, takewhile
from typing import Any, ClassVar

import orjson

from afterwit.dialects.dialect import (
    NO_EARLIER_TURNS,
    BlockEncoder,
    CallDelta,
    ChoiceEnd,
    Dialect,
    EarlierTurns,
    JsonObject,
    ParsedCall,
    ReasoningDelta,
    References,
    ReferringParser,
    ResponseEvent,
    ResponseHead,
    TextDelta,
    TokenCount,
    TokenLogprob,
    Usage,
    in_pieces,
    named_event,
    sealed,
)
from afterwit.dialects.fields import (
    FAILURE,
    Item,
    Tool,
    as_arguments,
    as_items,
    as_list,
    as_name,
    as_object,
    as_result,
    as_role,
    flag,
    omitted,
    parse_tools,
    shown,
    storable,
    text,
    wrong_value,
)
from afterwit.dialects.request import (
    JsonForm,
    ModelRequest,
    RequestLimits,
    ToolChoice,
    parse_sampling,
    parse_schema,
    parse_template_args,
)
from afterwit.errors import PromptTooLong, RequestError
from afterwit.text import without_halves
from afterwit.turn import (
    STORED_PREFIX,
    Conversation,
    Finish,
    Message,
    ToolCall,
    Turn,
    choice_turn,
    turn_of_response,
    with_prefix,
)

PATH = "/v1/messages"

ROLES = ("user", "assistant", "system")

CALL, CALL_PREFIX = "tool_use", "toolu"

_CHOICES = {
    "auto": ToolChoice.AUTO,
    "none": ToolChoice.NONE,
    "any": ToolChoice.REQUIRED,
    "tool": ToolChoice.REQUIRED,
}

_BILLING = re.compile(r"^x-anthropic-billing-header:[^\n]*\n?", re.MULTILINE)
"""A line that Claude Code adds to the system text for its servers. It changes with every request."""

_ADDITION, _REMOVAL = "tool_addition", "tool_removal"
"""Blocks that change the tools from there on. Anthropic's tool runners and Claude Code send them."""

_SILENT = frozenset(
    {"thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use", "tool_reference", "container_upload"}
    | {"mcp_tool_listing", "fallback", _ADDITION, _REMOVAL}
)
"""Thoughts are read with the assistant's message, and changes of the tools with the tools. Anthropic's own
servers add the other blocks."""

_SERVER_RESULT = "_tool_result"
"""Suffix of the results of Anthropic's own tools, such as `web_search_tool_result`."""

THREAD_NOT_FOUND = "thread_not_found"
"""The code on which Anthropic's SDKs send the whole conversation again."""


def parse_request(body: Any, limits: RequestLimits, earlier: EarlierTurns = NO_EARLIER_TURNS) -> ModelRequest:
    """Read a request's JSON and the thread that it continues.

    Raises RequestError 400 with the name of the malformed field, and 404 for a thread that is not `earlier`.
    """
    data = as_object(body, "the body")
    if data.get("compaction") is not None:  # its client takes the whole response for a summary
        message = "compaction is not served: ask for a summary in a message of the user."
        raise RequestError(400, "unsupported_parameter", message, param="compaction")
    previous = _thread(data, earlier.previous)
    messages, prefill = _parse_begun(data.get("system"), data.get("messages"), limits, previous)
    thinks, effort = None, None
    if data.get("thinking") is not None:
        thinks = Item(data["thinking"], "thinking").text("type") != "disabled"
        configs = [one.get("output_config") or {} for one in (data, *data["messages"])] if thinks else []
        efforts = [as_object(config, "output_config").get("effort") for config in configs]
        effort = next(filter(None, reversed(efforts)), None)
    tools, unserved = parse_tools(data.get("tools"), limits.max_tools, _function)
    tools = tools if previous is None else previous.conversation.tools
    tools = _changed(tools, data["messages"], limits.max_tools)
    tool_choice, required_tool, parallel_calls = parse_tool_choice(data.get("tool_choice"), tools)
    return ModelRequest(
        model=text(data, "model"),
        conversation=Conversation(
            messages=messages,
            tools=tools,
            template_args=parse_template_args(
                {} if thinks is None else {"enable_thinking": thinks}, effort, "output_config.effort"
            ),
        ),
        sampling=parse_sampling(data, limits, lengths=("max_tokens",), stops="stop_sequences"),
        stream=flag(data, "stream"),
        tool_choice=tool_choice,
        required_tool=required_tool,
        parallel_calls=parallel_calls,
        show_reasoning=bool(thinks),
        form=_form(data),
        prefill=prefill,
        follows=None if previous is None else previous.id,
        unserved_tool=unserved,
    )


def references_of(body: Mapping[str, Any]) -> References:
    """The response from which a thread goes on."""
    try:
        return References(previous=choice_turn(turn_of_response(body["thread"]["previous_message_id"]), 0))
    except (KeyError, TypeError, ValueError):
        return References()


def _thread(data: Mapping[str, Any], previous: Turn | None) -> Turn | None:
    """The turn from which a thread goes on; None for a request that contains its conversation. All responses
    are stored, so any may be continued."""
    if data.get("thread") is None:
        return None
    kind = Item(data["thread"], "thread").text("type")
    if kind == "create":
        return None
    if kind != "continue":
        raise wrong_value("thread.type", f"must be create or continue, not {shown(kind)}")
    for name in ("system", "tools"):
        if data.get(name):
            raise wrong_value(name, "is the thread's own: leave it out, or begin another thread")
    if previous is None:
        message = "thread.previous_message_id: there is no such message."
        raise RequestError(404, THREAD_NOT_FOUND, message, param="thread")
    return previous


def _form(data: Mapping[str, Any]) -> JsonForm | None:
    """The required form, in the current field or in the beta's."""
    config = data.get("output_config")
    config = {} if config is None else as_object(config, "output_config")
    forms = {"output_config.format": config.get("format"), "output_format": data.get("output_format")}
    for where, value in forms.items():
        if value is not None:
            form = Item(value, where)
            if (kind := form.text("type")) != "json_schema":
                raise wrong_value(form.at("type"), f"must be json_schema, not {shown(kind)}")
            return parse_schema(form.get("schema"), f"{where}.schema", strict=True)
    return None


def _function(tool: Item) -> Tool | None:
    """A tool of the client's own, in chat's form; None for tools that Anthropic's servers define or run."""
    if tool.get("type") not in (None, "custom"):
        return None
    function: dict[str, Any] = {"name": as_name(tool)}
    if tool.get("description") is not None:
        function["description"] = tool.text("description")
    if tool.get("input_schema") is not None:
        function["parameters"] = tool.item("input_schema").data
    storable(function, tool.where)
    return {"type": "function", "function": function}


def _changed(tools: tuple[Tool, ...], messages: Sequence[Mapping[str, Any]], most: int) -> tuple[Tool, ...]:
    """The tools after the changes that parsed messages hold: each defines a tool, or names a known one."""
    changes = [
        Item(block, f"messages[{index}].content[{place}]")
        for index, message in enumerate(messages)
        if isinstance(message.get("content"), list)
        for place, block in enumerate(message["content"])
        if isinstance(block, dict) and block["type"] in (_ADDITION, _REMOVAL)
    ]
    if not changes:
        return tools
    known = {tool["function"]["name"]: tool for tool in tools}
    offered = dict(known)
    for block in changes:
        change = block.item("tool")
        match change.text("type"):
            case "tool_definition":
                if (tool := _function(change.item("definition"))) is not None:
                    name = tool["function"]["name"]
                    known[name] = offered[name] = tool
            case "tool_reference":
                name = change.text("name")
                if block.get("type") == _REMOVAL:
                    offered.pop(name, None)
                elif name in known:
                    offered[name] = known[name]
    if len(offered) > most:
        raise wrong_value("messages", f"make {len(offered)} tools, more than {most}")
    return tuple(offered.values())


def parse_tool_choice(value: Any, tools: Sequence[Tool]) -> tuple[ToolChoice, str | None, bool]:
    """Whether the response calls a tool, which one if it is named, and whether it may make several calls."""
    if value is None:
        return ToolChoice.AUTO, None, True
    item = Item(value, "tool_choice")
    kind = item.text("type")
    if kind not in _CHOICES:
        raise wrong_value("tool_choice.type", f"must be one of {', '.join(_CHOICES)}, not {shown(kind)}")
    choice = _CHOICES[kind]
    if choice is ToolChoice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "asks for a call, but there are no tools")
    name = item.text("name") if kind == "tool" else None
    if name is not None and name not in {tool["function"]["name"] for tool in tools}:
        raise wrong_value("tool_choice.name", f"is {shown(name)}, which is not among the tools")
    return choice, name, not flag(item.data, "disable_parallel_tool_use")


def _parse_begun(
    system: Any, messages: Any, limits: RequestLimits, previous: Turn | None
) -> tuple[tuple[Message, ...], str]:
    """The messages before the response, and its prefill: a last message of the assistant. Those of a thread
    follow its `previous` turn.

    System text is one message at the beginning, as templates require. Claude Code also sends some later:
    that becomes a reminder, in the form of the client's own reminders.
    """
    if _count_blocks([system]) > limits.max_parts:
        raise wrong_value("system", f"holds more than {limits.max_parts} blocks")
    said = parse_messages(messages, limits)
    known = () if previous is None else (*previous.conversation.messages, previous.message)
    begun = [] if known else list(takewhile(lambda message: message.role == "system", said))
    texts = [_BILLING.sub("", text) for text in _texts_of(parse_blocks(system, "system"))]
    text = "\n".join(filter(None, [*texts, *(message.content for message in begun)]))
    rest = [
        Message(role="user", content=f"<system-reminder>\n{message.content}\n</system-reminder>")
        if message.role == "system"
        else message
        for message in said[len(begun) :]
        if message.role != "system" or message.content  # without text it only sets the effort
    ]
    prefill = ""
    if rest and rest[-1].role == "assistant" and not rest[-1].tool_calls:
        prefill = (rest.pop().content or "").strip()
    if not rest:
        raise wrong_value("messages", "must hold at least one message of the user")
    every = (*known, *((Message(role="system", content=text),) if text else ()), *rest)
    calls = sum(len(message.tool_calls) + (message.role == "tool") for message in every)
    if calls > limits.max_calls:
        raise wrong_value("messages", f"hold {calls} tool calls and results, more than {limits.max_calls}")
    return every, prefill


def parse_messages(value: Any, limits: RequestLimits) -> list[Message]:
    """The `messages` of a request, with a message for each tool result. Raises RequestError 400."""
    written = as_list(value, "messages", most=limits.max_messages)
    if not written:
        raise wrong_value("messages", "must hold at least one message")
    blocks = _count_blocks(message.get("content") for message in written if isinstance(message, dict))
    if blocks > limits.max_parts:
        raise wrong_value("messages", f"hold {blocks} blocks, more than {limits.max_parts}")
    said: list[Message] = []
    items = as_items(written, "messages")
    newest = max((index for index, item in enumerate(items) if item.get("role") == "user"), default=0)
    for index, item in enumerate(items):
        role = as_role(item, ROLES)
        parts = parse_blocks(item.get("content"), item.at("content"))
        if role == "user":
            said += _user(parts)
        elif role == "assistant":
            said.append(_assistant(parts))
        else:
            is_over = item.get("clear_at") == "next_user_message" and index < newest
            texts = [] if is_over else _texts_of(parts)
            said.append(Message(role="system", content=_BILLING.sub("", "\n".join(texts))))
    return said


def _count_blocks(contents: Iterable[Any]) -> int:
    """Blocks of contents and of the tool results in them. Counting is much faster than parsing."""
    lists = [content for content in contents if isinstance(content, list)]
    inner = [block.get("content") for content in lists for block in content if isinstance(block, dict)]
    return sum(map(len, lists)) + sum(len(content) for content in inner if isinstance(content, list))


def _user(blocks: Sequence[Block]) -> list[Message]:
    """A message for each tool result, and one for the blocks between two results."""
    messages: list[Message] = []
    for is_result, group in groupby(blocks, lambda block: block.kind == "tool_result"):
        if is_result:
            messages += map(_result, group)
        else:
            texts = _texts_of(group)
            ends = accumulate(len(text) + 1 for text in texts[:-1])
            messages.append(Message(role="user", content="\n".join(texts), breaks=tuple(ends)))
    return messages or [Message(role="user", content="")]


def _result(block: Block) -> Message:
    text = "\n".join(_texts_of(parse_blocks(as_result(block, "content"), block.at("content"))))
    if block.get("is_error") is True and not text.startswith(FAILURE):
        text = FAILURE + text
    return Message(
        role="tool", content=text, tool_call_id=with_prefix(STORED_PREFIX, block.text("tool_use_id"))
    )


def _assistant(blocks: Sequence[Block]) -> Message:
    calls = tuple(
        ToolCall(
            id=with_prefix(STORED_PREFIX, block.text("id")),
            name=block.text("name"),
            arguments=as_arguments(block, "input"),
        )
        for block in blocks
        if block.kind == "tool_use"
    )
    thoughts = [block.optional("thinking") or "" for block in blocks if block.kind == "thinking"]
    content = "".join(_texts_of(block for block in blocks if block.kind != "tool_use"))
    return Message(
        role="assistant",
        content=content if content or not calls else None,
        reasoning="".join(thoughts) or None,
        tool_calls=calls,
    )


class Block(Item):
    """A block of a content; a string is a block of text."""

    __slots__ = ("kind",)

    def __init__(self, value: Any, where: str) -> None:
        super().__init__({"type": "text", "text": value} if isinstance(value, str) else value, where)
        self.kind = self.text("type")


def parse_blocks(value: Any, where: str) -> list[Block]:
    """The blocks of a content; a string is one block of text, null is none."""
    if value is None:
        return []
    if isinstance(value, str):
        return [Block(value, where)]
    return [Block(part, f"{where}[{index}]") for index, part in enumerate(as_list(value, where))]


def _texts_of(blocks: Iterable[Block]) -> list[str]:
    texts = []
    for block in blocks:
        match block.kind:
            case "text":
                texts.append("" if block.data.get("text", "") is None else block.text("text"))
            case "document":
                texts.append(_document(block))
            case "search_result":
                heads = (block.get(name) for name in ("title", "source"))
                lines = [head for head in heads if isinstance(head, str)]
                texts.append("\n".join([*lines, _plain(block)]))
            case kind if kind not in _SILENT and not kind.endswith(_SERVER_RESULT):
                texts.append(omitted(kind))
    return texts


def _document(block: Block) -> str:
    source = block.item("source")
    match source.get("type"):
        case "text":
            return source.text("data")
        case "content":
            return _plain(source)
    return omitted(block.kind)


def _plain(item: Item) -> str:
    """The text of a content inside a block, with placeholders for other blocks, however deep they nest."""
    blocks = parse_blocks(item.get("content"), item.at("content"))
    return "\n".join(block.text("text") if block.kind == "text" else omitted(block.kind) for block in blocks)


PING: JsonObject = {"type": "ping"}

STOP_REASONS = {Finish.STOP: "end_turn", Finish.LENGTH: "max_tokens", Finish.TOOL_CALLS: "tool_use"}

_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    CALL: ("input_json_delta", "partial_json"),
}
"""By the type of a block: the type of what is added to it, and the field that holds it."""


class MessageEncoder(BlockEncoder):
    """A stream of events, each named after its type, or one JSON body.

    In a stream, each block stays as it began.
    """

    KINDS: ClassVar = {TextDelta: "text", ReasoningDelta: "thinking", CallDelta: CALL, ParsedCall: CALL}

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        hidden = () if request.show_reasoning else (ReasoningDelta,)
        super().__init__(stream=request.stream, heartbeat=named_event(PING), hidden=hidden)
        self._head = head
        self._stop: JsonObject = {}

    def end_choice(self, end: ChoiceEnd) -> bytes:
        """The reason of the end; the matched string only if it is the reason."""
        if end.finish is Finish.STOP and end.stop is not None:
            self._stop = {"stop_reason": "stop_sequence", "stop_sequence": end.stop}
        else:
            self._stop = {"stop_reason": STOP_REASONS[end.finish], "stop_sequence": None}
        self._close(complete=True)
        return self._sent()

    def end(self, usage: Usage, version: int) -> bytes:
        if not self._stream:
            return orjson.dumps(_message(self._head, self._blocks, self._stop, usage))
        self._send("message_delta", delta=self._stop, usage=_usage(usage))
        self._send("message_stop")
        return self._sent()

    def fail(self, error: RequestError) -> bytes:
        return named_event(error_body(error)) if self._stream else orjson.dumps(error_body(error))

    def _start(self) -> None:
        stop = {"stop_reason": None, "stop_sequence": None}
        usage = Usage(prompt=self._head.prompt_tokens, completion=0)
        self._send("message_start", message=_message(self._head, [], stop, usage))
        self._send("ping")

    def _begin_block(self, event: ResponseEvent) -> None:
        match event:
            case TextDelta():
                block: JsonObject = {"text": ""}
            case ReasoningDelta():
                block = {"thinking": "", "signature": ""}
            case call:
                id = with_prefix(CALL_PREFIX, self._head.call_id(0, call.index))
                block = {"id": id, "name": call.name, "input": {}}
        self._blocks.append({"type": self._open, **block})
        self._send_block("start", content_block=self._blocks[-1])

    def _grow(self, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        kind, field = _DELTAS[self._open]
        for piece in in_pieces(without_halves(text)) if self._open == CALL else (text,):
            self._send_block("delta", delta={"type": kind, field: piece})

    def _end_block(self, text: str, *, complete: bool) -> None:
        signature = sealed(self._head.turn)
        if self._open == "thinking":
            self._send_block("delta", delta={"type": "signature_delta", "signature": signature})
        self._send_block("stop")
        if self._stream:
            return
        match self._open:
            case "text":
                self._blocks[-1] |= {"text": text}
            case "thinking":
                self._blocks[-1] |= {"thinking": text, "signature": signature}
            case _:
                self._blocks[-1] |= {"input": orjson.Fragment(without_halves(text))}

    def _send_block(self, kind: str, **fields: JsonObject) -> None:
        self._send(f"content_block_{kind}", index=len(self._blocks) - 1, **fields)


def _message(head: ResponseHead, content: list[JsonObject], stop: JsonObject, usage: Usage) -> JsonObject:
    return {
        "id": f"msg_{head.turn}",
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": content,
        **stop,
        "usage": _usage(usage),
    }


def _usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }


_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Error types of single statuses."""


def error_body(error: RequestError) -> JsonObject:
    """`{"type": "error", "error": {type, message}}`: a response's body, or a stream's last event."""
    words = error.message
    if isinstance(error, PromptTooLong):
        words = f"{error.tokens} tokens > {error.context_length} maximum"
    if error.code == "context_length_exceeded":  # clients compact if they find these words and numbers
        words = f"prompt is too long: {words}"
    kind = _ERRORS.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    details = {"details": {"error_code": error.code}} if error.code == THREAD_NOT_FOUND else {}
    return {"type": "error", "error": {"type": kind, "message": words, **details}}


PARSE = ReferringParser(references=references_of, parse=parse_request)

ANTHROPIC_MESSAGES = Dialect(
    name="anthropic_messages",
    path=PATH,
    parse=PARSE,
    encoder=MessageEncoder,
    error_body=error_body,
    extra_routes=(
        TokenCount(path=f"{PATH}/count_tokens", parse=PARSE, body=lambda tokens: {"input_tokens": tokens}),
    ),
    header="anthropic-version",
    request_id_header="request-id",
)
