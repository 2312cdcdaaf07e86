"""OpenAI's Responses API: its requests, the earlier responses that they refer to, and its responses, whole,
stored, or as a stream of numbered events.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import orjson

from afterwit.dialects import chat
from afterwit.dialects.dialect import (
    COMMENT,
    NO_EARLIER_TURNS,
    BlockEncoder,
    CallDelta,
    ChoiceDelta,
    ChoiceEnd,
    Dialect,
    EarlierTurns,
    Frame,
    JsonObject,
    ParsedCall,
    ReasoningDelta,
    References,
    ReferringParser,
    ResponseEvent,
    ResponseHead,
    StoredResponses,
    TextDelta,
    TokenCount,
    TokenLogprob,
    Usage,
    sealed,
)
from afterwit.dialects.fields import (
    SPEAKERS,
    Item,
    as_arguments,
    as_items,
    as_list,
    as_name,
    as_object,
    as_role,
    flag,
    omitted,
    parse_tools,
    storable,
    text,
    wrong_type,
    wrong_value,
)
from afterwit.dialects.grouped_tools import (
    NAMESPACE,
    joined_name,
    names_in_groups,
    ungrouped,
    with_added_tools,
)
from afterwit.dialects.request import (
    Field,
    ModelRequest,
    RequestLimits,
    parse_form,
    parse_sampling,
    parse_template_args,
)
from afterwit.errors import RequestError
from afterwit.text import one_line
from afterwit.turn import (
    STORED_PREFIX,
    Conversation,
    Finish,
    Message,
    ToolCall,
    Turn,
    call_id,
    choice_turn,
    turn_of_response,
    with_prefix,
)

PATH = "/v1/responses"

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "background": False,
        "frequency_penalty": 0.0,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }
)
"""Request fields that the response repeats, and their values if the client does not send them."""

ROLES = ("user", "assistant", "system", "developer")

LOGPROBS = "message.output_text.logprobs"
"""The entry of `include` that requests log-probs."""

NOT_SERVED = {
    "background": "Responses in the background are not served: leave out background.",
    "conversation": "Conversations are not kept by name: send previous_response_id, or the whole input.",
    "prompt": "Stored prompts are not served: send instructions and input.",
}
"""Fields that a client would rely on, with the message of their refusal."""

ABSENT = {"description": None, "parameters": None, "strict": None}
"""Fields of a function in a response that the client did not send."""

OTHER_CALL, OTHER_OUTPUT = "_call", "_output"
"""The ends of the types of items for tools that OpenAI defines or runs, such as `local_shell_call`."""

NOT_GIVEN = frozenset({"type", "id", "call_id", "status", "name", "server_label", "result"})
"""Fields of such a call that are not arguments. A `result` is a picture."""

RESULTS = frozenset({"output", "outputs", "results", "error"})
"""Fields of such a call that are its result, where OpenAI ran the tool."""

UPDATED = {"reasoning": "effort", "text": "format"}
"""The fields of a `configuration_update`, and the setting that each may replace from there on."""

ITEMS_OF_ONE = 3
"""Items of one message: a thought, a text and a call."""

MOST_REFERENCES = 256
"""Turns that one request may refer to: each is read from the store."""

CALL_PREFIX = "call_"
"""OpenClaw rewrites the ids of calls that begin with anything else."""

MESSAGE, REASONING, CALL = "msg", "rs", "fc"
"""The kinds of our items, which are the prefixes of their ids."""

_ITEM = re.compile(r"(msg|rs|fc)_([0-9a-z]{26})(\d{1,4})", re.ASCII)
"""The id of one of our items: its kind, its turn, and its number among the turn's items of this kind."""


def parse_request(body: Any, limits: RequestLimits, earlier: EarlierTurns = NO_EARLIER_TURNS) -> ModelRequest:
    """Read a request's JSON and the earlier turns that it refers to.

    Raises RequestError 400 for a malformed field, and 404 for a response or an item that is not in `earlier`.
    """
    data = _updated(with_added_tools(as_object(body, "the body")))
    for name, message in NOT_SERVED.items():
        if data.get(name):
            raise RequestError(400, "unsupported_parameter", message, param=name)
    if text(data, "previous_response_id") is not None and earlier.previous is None:
        message = "previous_response_id: there is no such response."
        raise RequestError(404, "previous_response_not_found", message, param="previous_response_id")
    instructions = text(data, "instructions")
    known, unserved = parse_tools(list(ungrouped(data)), limits.max_tools, chat.as_function)
    tool_choice, required_tool, tools = chat.parse_tool_choice(data.get("tool_choice"), known)
    included, reasoning = data.get("include"), as_object(data.get("reasoning") or {}, "reasoning")
    echoed = dict(DEFAULTS)
    for name, default in DEFAULTS.items():
        if (value := data.get(name)) is not None:
            storable({name: value}, name)
            mixed = isinstance(default, dict) and isinstance(value, dict)
            echoed[name] = {**default, **value} if mixed else value
    echoed["tools"] = [_echoed(tool) for tool in echoed["tools"]]
    return ModelRequest(
        model=text(data, "model"),
        conversation=Conversation(
            messages=_messages(data, instructions, earlier, limits),
            tools=tools,
            template_args=parse_template_args(
                data.get("chat_template_kwargs"), reasoning.get("effort"), "reasoning.effort"
            ),
            instructed=bool(instructions),
        ),
        sampling=parse_sampling(data, limits, lengths=("max_output_tokens",)),
        stream=flag(data, "stream"),
        tool_choice=tool_choice,
        required_tool=required_tool,
        parallel_calls=flag(data, "parallel_tool_calls", True),
        form=parse_form(as_object(data.get("text") or {}, "text").get("format"), "text.format"),
        logprobs=isinstance(included, list) and LOGPROBS in included,
        top_logprobs=chat.parse_top_logprobs(data),
        follows=None if earlier.previous is None else earlier.previous.id,
        echoed=echoed,
        unserved_tool=unserved,
    )


def _updated(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request with the settings that its items replace; the last one counts."""
    items, changed = data.get("input"), dict[str, dict[str, Any]]()
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, Mapping) and item.get("type") == "configuration_update":
            for name, setting in UPDATED.items():
                update = as_object(item.get(name) or {}, f"input[{index}].{name}")
                if setting in update:
                    changed[name] = {setting: update[setting]}
    return {
        **data,
        **{name: {**as_object(data.get(name) or {}, name), **new} for name, new in changed.items()},
    }


def _messages(
    data: Mapping[str, Any], instructions: str | None, earlier: EarlierTurns, limits: RequestLimits
) -> tuple[Message, ...]:
    messages = [Message(role="system", content=instructions)] if instructions else []
    if earlier.previous is not None:
        before = earlier.previous.conversation
        messages += [*before.messages[1 if before.instructed else 0 :], earlier.previous.message]
    messages += parse_input(data.get("input"), earlier.quoted, limits)
    if not messages:
        raise wrong_value("input", "must hold at least one message")
    calls = sum(len(message.tool_calls) for message in messages)
    if len(messages) > limits.max_messages:
        raise wrong_value("input", f"makes {len(messages)} messages, more than {limits.max_messages}")
    if calls > limits.max_calls:
        raise wrong_value("input", f"holds {calls} tool calls, more than {limits.max_calls}")
    return tuple(messages)


def _echoed(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**ABSENT, **tool} if tool.get("type") == "function" else tool


def parse_input(value: Any, quoted: Mapping[str, Message], limits: RequestLimits) -> Iterator[Message]:
    """The messages of an `input`: a text of the user, or items, or null for none. Raises 400 and 404.

    `quoted`: earlier responses that items may refer to, by turn.
    """
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if value is not None and not isinstance(value, list):
        raise wrong_type("input", "a string or an array of items", value)
    parts: list[Message] = []
    for item in as_items(value, "input", most=ITEMS_OF_ONE * limits.max_messages):
        identifier = _referred_id(item.data)
        if identifier is not None:
            parts += _referred_part(identifier, quoted, item.where)
        elif item.get("type") == "item_reference":
            raise wrong_type(item.at("id"), "a string", item.get("id"))
        else:
            parts += _item_parts(item)
    return _joined(parts)


def _thought_of(content: str) -> str:
    """The thought that is all of a message, as Pydantic AI returns it; empty if the content is another."""
    before, _, rest = content.partition("<think>")
    thought, closed, after = rest.partition("</think>")
    return "" if before or after or not closed else thought.strip()


def _item_parts(item: Item) -> Iterator[Message]:
    """An item as a part of a message. Thoughts without text, lists of tools and settings are left out. A note
    replaces other items that cannot be read, such as compactions."""
    match "message" if item.get("type") is None else item.text("type"):
        case "message":
            role = as_role(item, ROLES)
            content = chat.text_of(item, "content", required=role in SPEAKERS) or ""
            thought = _thought_of(content) if role == "assistant" else ""
            yield Message(role=role, reasoning=thought) if thought else Message(role=role, content=content)
        case "reasoning":
            name = next((name for name in ("content", "summary") if item.get(name)), None)
            if name is not None:  # the client returns its plain text
                parts = as_items(item.get(name), item.at(name))
                if texts := [words for part in parts if (words := part.optional("text"))]:
                    yield Message(role="assistant", reasoning="\n\n".join(texts))
        case "function_call" | "custom_tool_call" as kind:
            custom = kind == "custom_tool_call"
            arguments = chat.custom_arguments(item) if custom else as_arguments(item, "arguments")
            id = with_prefix(STORED_PREFIX, item.text("call_id"))
            name = joined_name(item.optional(NAMESPACE), item.text("name"))
            yield Message(role="assistant", tool_calls=(ToolCall(id=id, name=name, arguments=arguments),))
        case "function_call_output" | "custom_tool_call_output":
            content = chat.text_of(item, "output", result=True) or ""
            yield Message(role="tool", content=content, tool_call_id=_call_id(item, "call_id"))
        case kind if kind.endswith(OTHER_CALL):
            yield from _other_call(item, kind.removesuffix(OTHER_CALL))
        case kind if kind.endswith(OTHER_OUTPUT):
            yield _result(_call_id(item, "call_id", "id"), item.get("output") or item.get("tools"))
        case "mcp_list_tools":  # the model does not need it
            item.text("server_label")
            for tool in as_items(as_list(item.get("tools"), item.at("tools")), item.at("tools")):
                as_name(tool)
        case "additional_tools" | "configuration_update":
            pass
        case kind:
            yield Message(role="user", content=omitted(kind))


def _other_call(item: Item, tool: str) -> Iterator[Message]:
    """A call of a tool that OpenAI defines; its result too if OpenAI ran it, of which nothing may be left."""
    storable(item.data, item.where)
    id = _call_id(item, "call_id", "id")
    given = {name: value for name, value in item.data.items() if name not in NOT_GIVEN | RESULTS}
    called = item if "arguments" in item.data else Item({"arguments": given}, "")
    arguments = as_arguments(called, "arguments")
    call = ToolCall(id=id, name=item.optional("name") or tool, arguments=arguments)
    found = [item.get(name) for name in sorted(RESULTS) if item.get(name)]
    ran = item.get("call_id") is None
    if found or not ran or arguments != "{}":
        yield Message(role="assistant", tool_calls=(call,))
        if found or ran:
            yield _result(id, found[0] if len(found) == 1 else found or "")


def _result(id: str, output: Any) -> Message:
    """The result of such a call: a text, else its JSON, unless it is a picture."""
    if isinstance(output, Mapping) and isinstance(output.get("type"), str):
        output = omitted(output["type"])
    if not isinstance(output, str):
        storable(output, "output")
        output = json.dumps(output, ensure_ascii=False)
    return Message(role="tool", content=output, tool_call_id=id)


def _call_id(item: Item, *names: str) -> str:
    """The id of an item's call, from the first of these fields; empty if a result does not name it."""
    return with_prefix(STORED_PREFIX, item.optional(*names) or "")


def _joined(parts: Iterable[Message]) -> Iterator[Message]:
    """The parts of each reply as one message: a response is sent as several items."""
    said: list[list[Message]] = []
    for part in parts:
        if said and _belongs(part, said[-1][-1]):
            said[-1].append(part)
        else:
            said.append([part])
    for run in said:
        if len(run) == 1:
            yield run[0]
            continue
        texts = [one.content for one in run if one.content is not None]
        thoughts = [one.reasoning for one in run if one.reasoning is not None]
        yield Message(
            role="assistant",
            content="".join(texts) if texts else None,
            reasoning="\n\n".join(thoughts) if thoughts else None,
            tool_calls=tuple(call for one in run for call in one.tool_calls),
        )


def _belongs(part: Message, last: Message) -> bool:
    """Whether a part is of the same reply as the `last`: it thinks, speaks, calls, and may speak again."""
    goes_on = part.content is None or last.content is None
    if part.reasoning is not None:
        goes_on = last.reasoning is not None
    return goes_on and part.role == last.role == "assistant"


def references_of(body: Mapping[str, Any]) -> References:
    """The turns that a body refers to. Raises RequestError 400 if there are too many."""
    items = body.get("input")
    referred = map(_referred_id, items) if isinstance(items, list) else ()
    found = (_ITEM.fullmatch(identifier or "") for identifier in referred)
    quoted = dict.fromkeys(item[2] for item in found if item is not None)
    if len(quoted) > MOST_REFERENCES:
        raise wrong_value("input", f"refers to {len(quoted)} responses, more than {MOST_REFERENCES}")
    try:
        previous = choice_turn(turn_of_response(body["previous_response_id"]), 0)
    except (KeyError, TypeError, ValueError):
        previous = None
    return References(previous=previous, quoted=tuple(quoted))


def _referred_id(item: Any) -> str | None:
    """The id of the item that this item refers to; None if it has content of its own."""
    if not isinstance(item, Mapping):
        return None
    bare = item.get("type") is None and "role" not in item
    identifier = item.get("id") if bare or item.get("type") == "item_reference" else None
    return identifier if isinstance(identifier, str) else None


def _referred_part(identifier: str, quoted: Mapping[str, Message], where: str) -> Iterator[Message]:
    """The part of an earlier response with this item id, unless it was empty. Raises RequestError 404."""
    item = _ITEM.fullmatch(identifier)
    response = None if item is None else quoted.get(item[2])
    if item is None or response is None:
        message = f"{where} refers to an item that is not known here."
        raise RequestError(404, "item_not_found", message, param=where)
    kind, number = item[1], int(item[3])
    if kind == CALL:
        if calls := response.tool_calls[number : number + 1]:
            yield Message(role="assistant", tool_calls=calls)
    elif kind == MESSAGE and not number:  # the first one holds the whole text, even if a call divided it
        yield Message(role="assistant", content=response.content or "")
    elif kind == REASONING and not number and response.reasoning:
        yield Message(role="assistant", reasoning=response.reasoning)


class _Form(NamedTuple):
    """The names in the JSON of an item. `parts` is the field of its one part; a call has none."""

    item_type: str
    text_event: str
    parts: str = ""
    part_type: str = ""
    part_event: str = ""


_FORMS = {
    MESSAGE: _Form("message", "response.output_text", "content", "output_text", "response.content_part"),
    REASONING: _Form(  # as a summary, because clients display and return summaries
        item_type="reasoning",
        text_event="response.reasoning_summary_text",
        parts="summary",
        part_type="summary_text",
        part_event="response.reasoning_summary_part",
    ),
    CALL: _Form("function_call", "response.function_call_arguments"),
}

STATUS = {Finish.LENGTH: "incomplete", Finish.CLIENT_LEFT: "cancelled"}
"""The status of a response that was cut; any other is completed."""


class ResponseEncoder(BlockEncoder):
    """One response: a stream of numbered events, or one JSON body at its end."""

    KINDS: ClassVar = {TextDelta: MESSAGE, ReasoningDelta: REASONING, CallDelta: CALL, ParsedCall: CALL}

    def __init__(
        self, turn: str, created: int, model: str, echoed: Mapping[str, Any], *, stream: bool
    ) -> None:
        """`created`: whole seconds since the epoch. `echoed`: the fields of the request that it repeats."""
        super().__init__(stream=stream, heartbeat=COMMENT)
        self._turn, self._created, self._model, self._echoed = turn, created, model, echoed
        self._number = 0
        self._grouped = names_in_groups(echoed.get("tools") or ())
        self._counted: Counter[str] = Counter()
        self._item: JsonObject = {}
        """The open item as it began."""
        self._logprobs: list[TokenLogprob] = []
        """Its log-probs so far."""
        self._finish = Finish.STOP
        self._ended: float | None = None

    def end_choice(self, end: ChoiceEnd) -> bytes:
        self._finish, self._ended = end.finish, end.ended
        if self._open == MESSAGE:
            self._logprobs += end.logprobs
        if not (self._counted[MESSAGE] or self._counted[CALL]):  # without text and calls: an empty message
            self._enter(TextDelta(text=""))
        self._close(complete=end.finish is not Finish.LENGTH and self._open != CALL)
        return self._sent()

    def end(self, usage: Usage, version: int) -> bytes:
        whole = self.whole(usage)
        if not self._stream:
            return orjson.dumps(whole)
        self._send(f"response.{whole['status']}", response=whole)
        return self._sent()

    def fail(self, error: RequestError) -> bytes:
        body = error_body(error)
        if not self._stream:
            return orjson.dumps(body)
        self._send("error", **{name: body["error"][name] for name in ("code", "message", "param")})
        # clients know few codes: all server errors have the same
        failure = {"code": "server_error" if error.status >= 500 else error.code, "message": error.message}
        self._send("response.failed", response=self._response("failed", error=failure))
        return self._sent()

    def whole(self, usage: Usage) -> JsonObject:
        counts = {
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
            "output_tokens": usage.completion,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.prompt + usage.completion,
        }
        return self._response(STATUS.get(self._finish, "completed"), usage=counts)

    def _response(self, status: str, **known: JsonObject) -> JsonObject:
        ended = self._ended if status == "completed" else None
        return {
            "id": f"resp_{self._turn}",
            "object": "response",
            "created_at": self._created,
            "completed_at": None if ended is None else int(ended),
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": self._model,
            "output": list(self._blocks),
            "usage": None,
            **self._echoed,
            **known,
        }

    def _start(self) -> None:
        response = self._response("in_progress")
        self._send("response.created", response=response)
        self._send("response.in_progress", response=response)

    def _begin_block(self, event: ResponseEvent) -> None:
        kind, form, self._logprobs = self._open, _FORMS[self._open], []
        identifier = f"{kind}_{self._turn}{self._counted[kind]}"
        self._counted[kind] += 1
        self._item = {"id": identifier, "type": form.item_type, "status": "in_progress"}
        if isinstance(event, CallDelta | ParsedCall):
            id = with_prefix(CALL_PREFIX, call_id(self._turn, event.index))
            named = self._grouped.get(event.name, {"name": event.name})
            self._item |= {"call_id": id, **named, "arguments": ""}
        else:
            more = {"role": "assistant"} if kind == MESSAGE else {"encrypted_content": sealed(self._turn)}
            self._item |= {**more, form.parts: []}
        self._send("response.output_item.added", output_index=len(self._blocks), item=self._item)
        if kind != CALL:
            self._send_part(f"{form.part_event}.added", part=self._part(""))

    def _grow(self, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        self._logprobs += logprobs
        self._send_part(f"{_FORMS[self._open].text_event}.delta", delta=text, **self._tokens(logprobs))

    def _end_block(self, text: str, *, complete: bool) -> None:
        form = _FORMS[self._open]
        item = {**self._item, "status": "completed" if complete else "incomplete"}
        if self._open == CALL:
            self._send_part(f"{form.text_event}.done", name=item["name"], arguments=text)
            item["arguments"] = text
        else:
            item[form.parts] = [part := self._part(text)]
            self._send_part(f"{form.text_event}.done", text=text, **self._tokens(self._logprobs))
            self._send_part(f"{form.part_event}.done", part=part)
        self._send("response.output_item.done", output_index=len(self._blocks), item=item)
        self._blocks.append(item)

    def _part(self, text: str) -> JsonObject:
        more = {"annotations": [], **self._tokens(self._logprobs)} if self._open == MESSAGE else {}
        return {"type": _FORMS[self._open].part_type, "text": text, **more}

    def _tokens(self, logprobs: Sequence[TokenLogprob]) -> JsonObject:
        return {"logprobs": chat.logprob_objects(logprobs)} if self._open == MESSAGE else {}

    def _send_part(self, kind: str, **fields: Any) -> None:
        """An event of the open item's part, or of its arguments."""
        parts = _FORMS[self._open].parts
        place = {"item_id": self._item["id"], "output_index": len(self._blocks)}
        self._send(kind, **place, **({f"{parts}_index": 0} if parts else {}), **fields)

    def _send(self, kind: str, **fields: Any) -> None:
        super()._send(kind, sequence_number=self._number, **fields)
        self._number += 1

    def _framed(self, text: str) -> bytes:
        blocks, number = len(self._blocks), self._number
        if blocks not in self._frames:
            self._number = 0
            super()._framed(text)
            before, after = self._frames[blocks]
            self._frames[blocks] = Frame(before.replace(b'_number":0', b'_number":%d', 1), after)
        self._number = number + 1
        before, after = self._frames[blocks]
        return before % number + one_line(orjson.dumps(text)) + after


def encoder(request: ModelRequest, head: ResponseHead) -> ResponseEncoder:
    return ResponseEncoder(head.turn, head.created, head.model, request.echoed, stream=request.stream)


def stored_body(turn: Turn) -> JsonObject:
    """A stored response. Only the sampling parameters and tools of its request are known, not when it ended,
    nor how many tokens were cached or are reasoning."""
    sampling, message = turn.sampling, turn.message
    echoed = {
        **DEFAULTS,
        "max_output_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "tools": [_echoed({"type": "function", **tool["function"]}) for tool in turn.conversation.tools],
    }
    events: list[ResponseEvent] = [ReasoningDelta(text=message.reasoning)] if message.reasoning else []
    events += [TextDelta(text=message.content)] if message.content else []
    events += [
        ParsedCall(index=index, name=call.name, arguments=call.arguments)
        for index, call in enumerate(message.tool_calls)
    ]
    response = ResponseEncoder(turn.id, int(turn.created), turn.model, echoed, stream=False)
    response.delta(ChoiceDelta(choice=0, events=events, version=0))
    response.end_choice(ChoiceEnd(choice=0, message=message, finish=turn.finish, stop=None, version=0))
    whole = response.whole(Usage(prompt=len(turn.prompt_ids), completion=len(turn.sampled.ids)))
    calls = (item for item in whole["output"] if item["type"] == _FORMS[CALL].item_type)
    for item, call in zip(calls, message.tool_calls, strict=True):
        item["call_id"] = with_prefix(CALL_PREFIX, call.id)  # a call before it may have been unreadable
    return whole


def error_body(error: RequestError) -> JsonObject:
    return chat.error_body(error, {Field.MESSAGES: "input", Field.FORMAT: "text.format"})


PARSE = ReferringParser(references=references_of, parse=parse_request)

OPENAI_RESPONSES = Dialect(
    name="openai_responses",
    path=PATH,
    parse=PARSE,
    encoder=encoder,
    error_body=error_body,
    extra_routes=(
        TokenCount(
            path=f"{PATH}/input_tokens",
            parse=PARSE,
            body=lambda tokens: {"object": "response.input_tokens", "input_tokens": tokens},
        ),
        StoredResponses(path=f"{PATH}/resp_{{response}}", body=stored_body),
    ),
)
