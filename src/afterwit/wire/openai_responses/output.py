"""The output of a response while it grows: its items, and the events that tell a client of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from afterwit.core import ids
from afterwit.core.message import Message
from afterwit.core.turn import Finish
from afterwit.wire.openai import logprob_objects
from afterwit.wire.openai_responses.item_ids import ItemId, ItemKind
from afterwit.wire.response import (
    CallDelta,
    ParsedCall,
    ReasoningDelta,
    ResponseEvent,
    SentCalls,
    TextDelta,
    TokenLogprob,
)

JsonObject = dict[str, Any]

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
