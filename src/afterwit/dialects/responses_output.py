"""The Responses API's output: a stream of numbered events, a JSON body, or a stored response."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard

import orjson

from afterwit import ids
from afterwit.dialects import sse
from afterwit.dialects.dialect import BodyEncoder, Encoder, JsonObject
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
from afterwit.turn import Finish, Turn

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
"""Request fields that the response repeats, and their values if the client does not send them."""

STATUS = {Finish.LENGTH: "incomplete", Finish.CLIENT_LEFT: "cancelled"}
"""The status of a response that was cut; any other is completed."""

PARAMS: dict[str | None, str] = {Field.MESSAGES: "input", Field.FORMAT: "text.format"}

_ITEM = re.compile(r"(msg|rs|fc)_([0-9a-z]{26})(\d{1,4})", re.ASCII)

CALL_PREFIX = "call_"
"""OpenClaw rewrites the ids of calls that begin with anything else."""


def encoder(request: ModelRequest, head: ResponseHead) -> Encoder:
    return StreamEncoder(request, head) if request.stream else WholeEncoder(request, head)


class StreamEncoder:
    """Server-sent events, numbered."""

    content_type = sse.CONTENT_TYPE
    heartbeat = sse.COMMENT

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._envelope = _Envelope(head.turn, head.created, head.model, request.echoed)
        self._output = Output(head.turn)
        self._finish = Finish.STOP
        self._sent = 0
        self._frames: dict[int, tuple[bytes, sse.Frame]] = {}
        """Events that add text to an item, by its index: the bytes before the number, and around the text."""

    def begin(self, version: int) -> bytes:
        response = self._envelope.response("in_progress")
        return self._events(_of_response(state, response) for state in ("created", "in_progress"))

    def delta(self, delta: ChoiceDelta) -> bytes:
        if (
            len(delta.events) == 1
            and not delta.logprobs
            and self._output.only_grows(event := delta.events[0])
        ):
            before, frame = self._frames.get(len(self._output.items)) or self._frame(event)
            self._output.add(event.text)
            self._sent += 1
            return before + b"%d" % (self._sent - 1) + frame.around(event.text)
        begun = b"" if self._sent else self.begin(delta.version)
        return begun + self._events(self._output.grow(delta))

    def _frame(self, event: TextDelta | ReasoningDelta) -> tuple[bytes, sse.Frame]:
        empty = ChoiceDelta(choice=0, events=(replace(event, text=""),), version=0)
        (grown,) = self._output.grow(empty)
        whole = sse.Frame.of(sse.named_event(_numbered(grown, 0)), "delta")
        before, key, after = whole.before.partition(b'"sequence_number":')
        frame = before + key, sse.Frame(after.removeprefix(b"0"), whole.after)
        self._frames[len(self._output.items)] = frame
        return frame

    def end_choice(self, end: ChoiceEnd) -> bytes:
        self._finish = end.finish
        return self._events(self._output.end(end.finish, end.logprobs))

    def end(self, usage: Usage, version: int) -> bytes:
        whole = self._envelope.ended(self._finish, self._output, usage)
        return self._events([_of_response(whole["status"], whole)])

    def fail(self, error: RequestError) -> bytes:
        form = error_body(error)["error"]
        told = {"type": "error", "code": form["code"], "message": form["message"], "param": form["param"]}
        # clients know few codes: all server errors have the same
        failure = {"code": "server_error" if error.status >= 500 else error.code, "message": error.message}
        failed = self._envelope.response("failed", self._output.items, error=failure)
        return self._events([told, _of_response("failed", failed)])

    def _events(self, events: Iterable[JsonObject]) -> bytes:
        sent = b""
        for event in events:
            sent += sse.named_event(_numbered(event, self._sent))
            self._sent += 1
        return sent


def _numbered(event: JsonObject, number: int) -> JsonObject:
    return {"type": event["type"], "sequence_number": number, **event}


def _of_response(state: str, response: JsonObject) -> JsonObject:
    return {"type": f"response.{state}", "response": response}


class WholeEncoder(BodyEncoder):
    """One JSON body."""

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        super().__init__(error_body)
        self._envelope = _Envelope(head.turn, head.created, head.model, request.echoed)
        self._output = Output(head.turn)
        self._finish = Finish.STOP

    def delta(self, delta: ChoiceDelta) -> bytes:
        whole = [event for event in delta.events if not isinstance(event, CallDelta)]
        list(self._output.grow(replace(delta, events=whole)))
        return b""

    def end_choice(self, end: ChoiceEnd) -> bytes:
        self._finish = end.finish
        list(self._output.end(end.finish, end.logprobs))
        return b""

    def end(self, usage: Usage, version: int) -> bytes:
        return orjson.dumps(self._envelope.ended(self._finish, self._output, usage))


def stored_body(turn: Turn) -> JsonObject:
    """A stored response. Only the sampling parameters and tools of its request are known."""
    sampling, message = turn.sampling, turn.message
    echoed = {
        **DEFAULTS,
        "max_output_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "tools": [{"type": "function", **tool["function"]} for tool in turn.conversation.tools],
    }
    events: list[ResponseEvent] = [ReasoningDelta(text=message.reasoning)] if message.reasoning else []
    events += [TextDelta(text=message.content)] if message.content else []
    events += [
        ParsedCall(index=index, name=call.name, arguments=call.arguments)
        for index, call in enumerate(message.tool_calls)
    ]
    output = Output(turn.id)
    list(output.grow(ChoiceDelta(choice=0, events=events, version=0)))
    list(output.end(turn.finish))
    usage = Usage(prompt=len(turn.prompt_ids), completion=len(turn.sampled.ids))
    return _Envelope(turn.id, int(turn.created), turn.model, echoed).ended(turn.finish, output, usage)


class _Envelope(NamedTuple):
    """The fields around the output of one response."""

    turn: str
    created: int
    """Whole seconds since the epoch."""
    model: str
    echoed: Mapping[str, Any]

    def ended(self, finish: Finish, output: Output, usage: Usage) -> JsonObject:
        return self.response(STATUS.get(finish, "completed"), output.items, usage=_usage(usage))

    def response(
        self,
        status: str,
        output: Sequence[JsonObject] = (),
        *,
        usage: JsonObject | None = None,
        error: JsonObject | None = None,
    ) -> JsonObject:
        return {
            "id": f"resp_{self.turn}",
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": self.model,
            "output": list(output),
            "usage": usage,
            **self.echoed,
        }


def _usage(usage: Usage) -> JsonObject:
    """The counts. Cached tokens and those of the reasoning are not counted separately."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }


def error_body(error: RequestError) -> JsonObject:
    return error_form(error, PARAMS)


class ItemKind(StrEnum):
    """The kind of an item, which is the prefix of its id."""

    MESSAGE = "msg"
    REASONING = "rs"
    CALL = "fc"


class ItemId(NamedTuple):
    """An item of one of our responses; `number` counts the turn's items of this kind."""

    kind: ItemKind
    turn: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}_{self.turn}{self.number}"


def read_item_id(identifier: str) -> ItemId | None:
    """The item with this id; None if the id is not ours."""
    found = _ITEM.fullmatch(identifier)
    return None if found is None else ItemId(ItemKind(found[1]), found[2], int(found[3]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextForm:
    """The JSON of an item that consists of text, in one part that grows."""

    kind: ItemKind
    head: JsonObject
    """The item's type, and role if it has one."""
    parts: str
    """The item's field for its parts."""
    index: str
    """The events' field for the index of the part."""
    part_event: str
    text_event: str
    """The prefixes of the events of the part and of its text."""
    part_type: str
    has_logprobs: bool

    def part(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> JsonObject:
        more = {"annotations": [], **self.tokens(logprobs)} if self.has_logprobs else {}
        return {"type": self.part_type, "text": text, **more}

    def tokens(self, logprobs: Sequence[TokenLogprob]) -> JsonObject:
        return {"logprobs": logprob_objects(logprobs)} if self.has_logprobs else {}

    def item(self, identifier: str, status: str, *parts: JsonObject) -> JsonObject:
        kind, *role = self.head.items()
        return {"id": identifier, **dict([kind]), "status": status, **dict(role), self.parts: list(parts)}


MESSAGE = TextForm(
    kind=ItemKind.MESSAGE,
    head={"type": "message", "role": "assistant"},
    parts="content",
    index="content_index",
    part_event="response.content_part",
    text_event="response.output_text",
    part_type="output_text",
    has_logprobs=True,
)

REASONING = TextForm(
    kind=ItemKind.REASONING,
    head={"type": "reasoning"},
    parts="summary",
    index="summary_index",
    part_event="response.reasoning_summary_part",
    text_event="response.reasoning_summary_text",
    part_type="summary_text",
    has_logprobs=False,
)
"""As a summary, because clients display and return summaries."""

FORMS: Mapping[type[ResponseEvent], TextForm] = {TextDelta: MESSAGE, ReasoningDelta: REASONING}


@dataclass(slots=True, kw_only=True)
class _OpenText:
    """The text item that is not complete yet."""

    form: TextForm
    identifier: str
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)


class Output:
    """The items of one response. Its generators yield the stream's events, without numbers."""

    def __init__(self, turn: str) -> None:
        self._turn = turn
        self._text: _OpenText | None = None
        self._call: JsonObject | None = None
        """The call that is not complete yet, with its arguments so far in a list."""
        self._calls = SentCalls()
        self._counted: Counter[ItemKind] = Counter()
        self.items: list[JsonObject] = []
        """The complete ones."""

    def only_grows(self, event: ResponseEvent) -> TypeGuard[TextDelta | ReasoningDelta]:
        """Whether the event only adds text to the open item."""
        return self._text is not None and self._text.form is FORMS.get(type(event))

    def add(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> _OpenText:
        """Add text to the open item, without an event."""
        assert self._text is not None
        self._text.texts.append(text)
        self._text.logprobs += logprobs
        return self._text

    def grow(self, delta: ChoiceDelta) -> Iterator[JsonObject]:
        """Add the events of one step. Log-probs are sent with its first text."""
        logprobs = delta.logprobs
        for event in delta.events:
            if isinstance(event, CallDelta | ParsedCall):
                yield from self._add_call(event)
                continue
            form, of_text = FORMS[type(event)], isinstance(event, TextDelta)
            if not self.only_grows(event):
                yield from self._close("completed")
                yield from self._begin(form)
            told, logprobs = (logprobs, ()) if of_text else ((), logprobs)
            text = self.add(event.text, told)
            yield self._of_part(f"{form.text_event}.delta", text, delta=event.text, **form.tokens(told))

    def end(self, finish: Finish, logprobs: Sequence[TokenLogprob] = ()) -> Iterator[JsonObject]:
        """The response has ended. Without text and calls it gets an empty message."""
        if self._text is not None and self._text.form.has_logprobs:
            self._text.logprobs += logprobs
        if not (self._counted[ItemKind.MESSAGE] or self._counted[ItemKind.CALL]):
            yield from self._close("completed")
            yield from self._begin(MESSAGE)
        yield from self._close("incomplete" if finish is Finish.LENGTH else "completed")

    def _begin(self, form: TextForm) -> Iterator[JsonObject]:
        text = self._text = _OpenText(form=form, identifier=self._next_id(form.kind))
        yield self._of_item("added", form.item(text.identifier, "in_progress"))
        yield self._of_part(f"{form.part_event}.added", text, part=form.part(""))

    def _close(self, status: str) -> Iterator[JsonObject]:
        """Complete the open text item. An open call was not completed: it is incomplete."""
        yield from self._end_call("incomplete")
        text, self._text = self._text, None
        if text is None:
            return
        form, whole = text.form, "".join(text.texts)
        part = form.part(whole, text.logprobs)
        yield self._of_part(f"{form.text_event}.done", text, text=whole, **form.tokens(text.logprobs))
        yield self._of_part(f"{form.part_event}.done", text, part=part)
        yield from self._done(form.item(text.identifier, status, part))

    def _add_call(self, call: CallDelta | ParsedCall) -> Iterator[JsonObject]:
        begins, arguments = self._calls.add(call)
        if begins:
            yield from self._close("completed")
            begun = {
                "id": self._next_id(ItemKind.CALL),
                "type": "function_call",
                "status": "in_progress",
                "call_id": ids.with_prefix(CALL_PREFIX, ids.call_id(self._turn, call.index)),
                "name": call.name,
                "arguments": "",
            }
            self._call = {**begun, "arguments": []}
            yield self._of_item("added", begun)
        assert self._call is not None, "a call is begun before it goes on"
        if arguments:
            self._call["arguments"].append(arguments)
            yield self._of_arguments("delta", self._call["id"], delta=arguments)
        if isinstance(call, ParsedCall):
            yield from self._end_call("completed")

    def _end_call(self, status: str) -> Iterator[JsonObject]:
        call, self._call = self._call, None
        if call is not None:
            item = {**call, "status": status, "arguments": "".join(call["arguments"])}
            yield self._of_arguments("done", item["id"], name=item["name"], arguments=item["arguments"])
            yield from self._done(item)

    def _done(self, item: JsonObject) -> Iterator[JsonObject]:
        yield self._of_item("done", item)
        self.items.append(item)

    def _next_id(self, kind: ItemKind) -> str:
        self._counted[kind] += 1
        return str(ItemId(kind, self._turn, self._counted[kind] - 1))

    def _of_item(self, what: str, item: JsonObject) -> JsonObject:
        return {"type": f"response.output_item.{what}", "output_index": len(self.items), "item": item}

    def _of_arguments(self, what: str, identifier: str, **fields: Any) -> JsonObject:
        place = {"item_id": identifier, "output_index": len(self.items)}
        return {"type": f"response.function_call_arguments.{what}", **place, **fields}

    def _of_part(self, kind: str, text: _OpenText, /, **fields: Any) -> JsonObject:
        place = {"item_id": text.identifier, "output_index": len(self.items), text.form.index: 0}
        return {"type": kind, **place, **fields}
