"""The Responses API's encoders: a stream of named events, or one JSON body."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeGuard

import orjson

from afterwit import ids
from afterwit.dialects import sse
from afterwit.dialects.dialect import Encoder
from afterwit.dialects.openai import error_form, logprob_objects
from afterwit.dialects.request import Field, ModelRequest
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
from afterwit.errors import RequestError
from afterwit.message import Message
from afterwit.turn import Finish, Turn

JsonObject = dict[str, Any]


def encoder(request: ModelRequest, head: ResponseHead) -> Encoder:
    """The encoder that the request asks for."""
    return StreamEncoder(request, head) if request.stream else BodyEncoder(request, head)


class GrowingResponse:
    """A response of one choice, and the events that tell of its growth."""

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._envelope = Envelope(
            turn=head.turn, created=head.created, model=head.model, echoed=request.echoed
        )
        self.output = Output(head.turn)
        self._finish = Finish.STOP

    def begin(self) -> Iterator[JsonObject]:
        for state in ("created", "in_progress"):
            yield _of_response(state, self._envelope.object("in_progress"))

    def grow(self, delta: ChoiceDelta) -> Iterator[JsonObject]:
        """Log-probs are told with the first text of a step."""
        logprobs = delta.logprobs
        for event in delta.events:
            yield from self.output.grow(event, logprobs)
            if isinstance(event, TextDelta):
                logprobs = ()

    def end_choice(self, end: ChoiceEnd) -> Iterator[JsonObject]:
        self._finish = end.finish
        yield from self.output.end(end.finish, end.logprobs)

    def whole(self, usage: Usage) -> JsonObject:
        """The response at its end."""
        return self._envelope.object(status_of(self._finish), self.output.items, usage=usage)

    def failed(self, error: RequestError) -> Iterator[JsonObject]:
        yield error_event(error)
        yield _of_response("failed", self._envelope.object("failed", self.output.items, error=failure(error)))


def _of_response(state: str, response: JsonObject) -> JsonObject:
    return {"type": f"response.{state}", "response": response}


class StreamEncoder:
    """Server-sent events, numbered."""

    content_type = sse.CONTENT_TYPE
    heartbeat = sse.COMMENT

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._response = GrowingResponse(request, head)
        self._sent = 0
        self._frames: dict[int, tuple[bytes, sse.Frame]] = {}
        """Of events that add text to an item, by its index: up to the number, then around the text."""

    def begin(self, version: int) -> bytes:
        return self._events(self._response.begin())

    def delta(self, delta: ChoiceDelta) -> bytes:
        output = self._response.output
        if len(delta.events) == 1 and not delta.logprobs and output.only_grows(event := delta.events[0]):
            before, frame = self._frames.get(len(output.items)) or self._frame(delta, event)
            output.add(event.text)
            self._sent += 1
            return before + b"%d" % (self._sent - 1) + frame.around(event.text)
        begun = b"" if self._sent else self.begin(delta.version)
        return begun + self._events(self._response.grow(delta))

    def _frame(self, delta: ChoiceDelta, event: TextDelta | ReasoningDelta) -> tuple[bytes, sse.Frame]:
        (grown,) = self._response.grow(replace(delta, events=(replace(event, text=""),)))
        whole = sse.Frame.of(sse.named_event(_numbered(grown, 0)), "delta")
        before, key, behind = whole.before.partition(b'"sequence_number":')
        frame = before + key, sse.Frame(behind.removeprefix(b"0"), whole.behind)
        self._frames[len(self._response.output.items)] = frame
        return frame

    def end_choice(self, end: ChoiceEnd) -> bytes:
        return self._events(self._response.end_choice(end))

    def end(self, usage: Usage, version: int) -> bytes:
        whole = self._response.whole(usage)
        return self._events([_of_response(whole["status"], whole)])

    def fail(self, error: RequestError) -> bytes:
        return self._events(self._response.failed(error))

    def _events(self, events: Iterable[JsonObject]) -> bytes:
        return b"".join(map(self._event, events))

    def _event(self, event: JsonObject) -> bytes:
        self._sent += 1
        return sse.named_event(_numbered(event, self._sent - 1))


def _numbered(event: JsonObject, number: int) -> JsonObject:
    return {"type": event["type"], "sequence_number": number, **event}


class BodyEncoder:
    """One JSON body, when everything is complete."""

    content_type = "application/json"
    heartbeat = b""

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._response = GrowingResponse(request, head)

    def begin(self, version: int) -> bytes:
        return b""

    def delta(self, delta: ChoiceDelta) -> bytes:
        whole = [event for event in delta.events if not isinstance(event, CallDelta)]
        for _ in self._response.grow(replace(delta, events=whole)):
            pass
        return b""

    def end_choice(self, end: ChoiceEnd) -> bytes:
        for _ in self._response.end_choice(end):
            pass
        return b""

    def end(self, usage: Usage, version: int) -> bytes:
        return orjson.dumps(self._response.whole(usage))

    def fail(self, error: RequestError) -> bytes:
        return orjson.dumps(error_body(error))


CALL_PREFIX = "call_"
"""OpenClaw rewrites the ids of calls that begin with anything else."""


def _message_item(identifier: str, status: str, parts: Sequence[JsonObject]) -> JsonObject:
    return {
        "id": identifier,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": list(parts),
    }


def _reasoning_item(identifier: str, status: str, parts: Sequence[JsonObject]) -> JsonObject:
    return {"id": identifier, "type": "reasoning", "status": status, "summary": list(parts)}


def _text_part(text: str, logprobs: Sequence[TokenLogprob] = ()) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprob_objects(logprobs)}


def _summary_part(text: str, logprobs: Sequence[TokenLogprob] = ()) -> JsonObject:
    return {"type": "summary_text", "text": text}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextForm:
    """How an item that consists of text is written. It has one part, which grows."""

    kind: ItemKind
    index: str
    """The field that says which part it is."""
    part_event: str
    text_event: str
    """What the events of the part, and those of its text, begin with."""
    part: Callable[[str, Sequence[TokenLogprob]], JsonObject]
    item: Callable[[str, str, Sequence[JsonObject]], JsonObject]
    """The item, from its id, its status and its parts."""
    has_logprobs: bool


class ItemKind(StrEnum):
    """What an item is, as its id says."""

    MESSAGE = "msg"
    REASONING = "rs"
    CALL = "fc"


MESSAGE = TextForm(
    kind=ItemKind.MESSAGE,
    index="content_index",
    part_event="response.content_part",
    text_event="response.output_text",
    part=_text_part,
    item=_message_item,
    has_logprobs=True,
)

REASONING = TextForm(
    kind=ItemKind.REASONING,
    index="summary_index",
    part_event="response.reasoning_summary_part",
    text_event="response.reasoning_summary_text",
    part=_summary_part,
    item=_reasoning_item,
    has_logprobs=False,
)
"""As a summary, because that is what clients show and send back."""

FORMS: Mapping[type[ResponseEvent], TextForm] = {TextDelta: MESSAGE, ReasoningDelta: REASONING}


@dataclass(slots=True, kw_only=True)
class _Growing:
    """The text item that is not complete yet."""

    form: TextForm
    identifier: str
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Calling:
    """The call that is not complete yet."""

    item: JsonObject
    pieces: list[str] = field(default_factory=list)


class Output:
    """The items of one response. Every method returns the events, not numbered, that tell of what it did."""

    def __init__(self, turn: str) -> None:
        self._turn = turn
        self._growing: _Growing | None = None
        self._calling: _Calling | None = None
        self._calls = SentCalls()
        self._counted: Counter[ItemKind] = Counter()
        self.items: list[JsonObject] = []
        """Those that are complete."""

    def only_grows(self, event: ResponseEvent) -> TypeGuard[TextDelta | ReasoningDelta]:
        """Whether the event is no more than text for the item that grows."""
        return self._growing is not None and self._growing.form is FORMS.get(type(event))

    def add(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> _Growing:
        """Take in more of the item that grows."""
        assert self._growing is not None
        self._growing.pieces.append(text)
        self._growing.logprobs += logprobs
        return self._growing

    def grow(self, event: ResponseEvent, logprobs: Sequence[TokenLogprob] = ()) -> Iterator[JsonObject]:
        """The response has grown. `logprobs` are those of the event's tokens."""
        match event:
            case TextDelta(text=text):
                yield from self._say(MESSAGE, text, logprobs)
            case ReasoningDelta(text=text):
                yield from self._say(REASONING, text)
            case CallDelta() | ParsedCall():
                yield from self._call(event)

    def end(self, finish: Finish, logprobs: Sequence[TokenLogprob] = ()) -> Iterator[JsonObject]:
        """The response has ended. One that neither speaks nor calls gets an empty message to look at."""
        if self._growing is not None and self._growing.form.has_logprobs:
            self._growing.logprobs += logprobs
        status = "incomplete" if finish is Finish.LENGTH else "completed"
        says = self._counted[ItemKind.MESSAGE] or self._counted[ItemKind.CALL]
        if not says:
            yield from self._close("completed")
            yield from self._begin(MESSAGE)
        yield from self._close(status)

    def _say(self, form: TextForm, text: str, logprobs: Sequence[TokenLogprob] = ()) -> Iterator[JsonObject]:
        if self._growing is None or self._growing.form is not form:
            yield from self._close("completed")
            yield from self._begin(form)
        growing = self.add(text, logprobs)
        yield self._of_part(f"{form.text_event}.delta", growing, delta=text, **_tokens(form, logprobs))

    def _begin(self, form: TextForm) -> Iterator[JsonObject]:
        growing = self._growing = _Growing(form=form, identifier=self._next_id(form.kind))
        yield self._of_item("added", form.item(growing.identifier, "in_progress", ()))
        yield self._of_part(f"{form.part_event}.added", growing, part=form.part("", ()))

    def _close(self, status: str) -> Iterator[JsonObject]:
        """Complete the text item that grows, if one does. A call that is still being written is none."""
        yield from self._end_call("incomplete")
        growing, self._growing = self._growing, None
        if growing is None:
            return
        form, text = growing.form, "".join(growing.pieces)
        part = form.part(text, growing.logprobs)
        item = form.item(growing.identifier, status, (part,))
        yield self._of_part(f"{form.text_event}.done", growing, text=text, **_tokens(form, growing.logprobs))
        yield self._of_part(f"{form.part_event}.done", growing, part=part)
        yield self._of_item("done", item)
        self.items.append(item)

    def _call(self, call: CallDelta | ParsedCall) -> Iterator[JsonObject]:
        begins, arguments = self._calls.add(call)
        if begins:
            yield from self._close("completed")
            yield from self._begin_call(call)
        assert self._calling is not None, "a call is begun before it goes on"
        if arguments:
            self._calling.pieces.append(arguments)
            yield self._of_arguments("delta", self._calling.item, delta=arguments)
        if isinstance(call, ParsedCall):
            yield from self._end_call("completed")

    def _begin_call(self, call: CallDelta | ParsedCall) -> Iterator[JsonObject]:
        item = {
            "id": self._next_id(ItemKind.CALL),
            "type": "function_call",
            "status": "in_progress",
            "call_id": ids.with_prefix(CALL_PREFIX, ids.call_id(self._turn, call.index)),
            "name": call.name,
            "arguments": "",
        }
        self._calling = _Calling(item=item)
        yield self._of_item("added", item)

    def _end_call(self, status: str) -> Iterator[JsonObject]:
        calling, self._calling = self._calling, None
        if calling is None:
            return
        item = {**calling.item, "status": status, "arguments": "".join(calling.pieces)}
        yield self._of_arguments("done", item, name=item["name"], arguments=item["arguments"])
        yield self._of_item("done", item)
        self.items.append(item)

    def _of_arguments(self, what: str, item: JsonObject, **fields: Any) -> JsonObject:
        place = {"item_id": item["id"], "output_index": len(self.items)}
        return {"type": f"response.function_call_arguments.{what}", **place, **fields}

    def _next_id(self, kind: ItemKind) -> str:
        identifier = str(ItemId(kind=kind, turn=self._turn, index=self._counted[kind]))
        self._counted[kind] += 1
        return identifier

    def _of_item(self, what: str, item: JsonObject) -> JsonObject:
        return {"type": f"response.output_item.{what}", "output_index": len(self.items), "item": item}

    def _of_part(self, kind: str, growing: _Growing, **fields: Any) -> JsonObject:
        place = {"item_id": growing.identifier, "output_index": len(self.items), growing.form.index: 0}
        return {"type": kind, **place, **fields}


def _tokens(form: TextForm, logprobs: Sequence[TokenLogprob]) -> JsonObject:
    return {"logprobs": logprob_objects(logprobs)} if form.has_logprobs else {}


def message_output(turn: str, message: Message, finish: Finish) -> list[JsonObject]:
    """The items of a stored response."""
    output = Output(turn)
    events: list[ResponseEvent] = []
    if message.reasoning:
        events.append(ReasoningDelta(text=message.reasoning))
    if message.content:
        events.append(TextDelta(text=message.content))
    for index, call in enumerate(message.tool_calls):
        events.append(ParsedCall(index=index, name=call.name, arguments=call.arguments))
    for event in events:
        list(output.grow(event))
    list(output.end(finish))
    return output.items


DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "background": False,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
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
"""Fields of a request that its response repeats, with what they are if the client sends none."""

STATUS = {Finish.LENGTH: "incomplete", Finish.CLIENT_LEFT: "cancelled"}
"""Of a response that did not end by itself; any other is completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What every state of one response repeats."""

    turn: str
    created: int
    """Whole seconds since the epoch."""
    model: str
    echoed: Mapping[str, Any]

    def object(
        self,
        status: str,
        output: Sequence[JsonObject] = (),
        *,
        usage: Usage | None = None,
        error: JsonObject | None = None,
    ) -> JsonObject:
        """The response in one state."""
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": RESPONSE_PREFIX + self.turn,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": error,
            "incomplete_details": reason,
            "model": self.model,
            "output": list(output),
            "usage": None if usage is None else _usage(usage),
            **self.echoed,
        }


def status_of(finish: Finish) -> str:
    """The state in which a response ended."""
    return STATUS.get(finish, "completed")


def stored_body(turn: Turn) -> JsonObject:
    """A response as the store has it. Of its request only what was sampled with is known."""
    sampling = turn.sampling
    known = {
        "max_output_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "tools": [{"type": "function", **tool["function"]} for tool in turn.conversation.tools],
    }
    envelope = Envelope(
        turn=turn.id, created=int(turn.created), model=turn.model, echoed={**DEFAULTS, **known}
    )
    usage = Usage(prompt=len(turn.prompt_ids), completion=len(turn.sampled.ids))
    return envelope.object(
        status_of(turn.finish), message_output(turn.id, turn.message, turn.finish), usage=usage
    )


def count_body(tokens: int) -> JsonObject:
    """The answer to a count of a request's tokens."""
    return {"object": "response.input_tokens", "input_tokens": tokens}


def _usage(usage: Usage) -> JsonObject:
    """Tokens from a cache, and those of the reasoning, are not counted apart."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }


PARAMS: dict[str | None, str] = {
    Field.MESSAGES: "input",
    Field.STOP_IDS: "stop_token_ids",
    Field.FORMAT: "text.format",
}
"""What clients call a field whose name here differs."""


def error_body(error: RequestError) -> dict[str, Any]:
    """A response's body."""
    return error_form(error, PARAMS)


def error_event(error: RequestError) -> dict[str, Any]:
    """The `error` event of a stream."""
    form = error_body(error)["error"]
    return {"type": "error", "code": form["code"], "message": form["message"], "param": form["param"]}


def failure(error: RequestError) -> dict[str, Any]:
    """The `error` of a failed response. Clients know few codes: a server's fault has one for all."""
    return {"code": "server_error" if error.status >= 500 else error.code, "message": error.message}


RESPONSE_PREFIX = "resp_"
_ITEM = re.compile(r"(msg|rs|fc)_([0-9a-z]{26})(\d{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemId:
    """An item of one of our responses."""

    kind: ItemKind
    turn: str
    index: int
    """Its place among the turn's items of this kind."""

    def __str__(self) -> str:
        return f"{self.kind}_{self.turn}{self.index}"


def read_item_id(identifier: str) -> ItemId | None:
    """The item that an id names; None if the id is not one of ours."""
    found = _ITEM.fullmatch(identifier)
    if found is None:
        return None
    return ItemId(kind=ItemKind(found[1]), turn=found[2], index=int(found[3]))
