"""Conversations over the real binder and a store in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afterwit.binding.bind import Binding
from afterwit.binding.request import ClientSession, IncomingRequest, client_session_of, read_request
from afterwit.dialects.chat import OPENAI_CHAT
from afterwit.gateway.prepare import bind_request, store_turn
from afterwit.gateway.settings import GatewaySettings
from afterwit.store import Store
from afterwit.turn import Conversation, Kind, Message, ToolCall, call_id, turn_id
from tests.fakes.turns import a_turn
from tests.store.databases import store_in_memory

FIXTURES = Path(__file__).parent / "fixtures"
SCOPE = "key/client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A turn that was requested, and its state in the store by now."""

    store: Store
    incoming: IncomingRequest
    binding: Binding
    response: Message

    @property
    def id(self) -> str:
        return self.incoming.turn

    @property
    def kind(self) -> Kind:
        return self.store.turn(self.id).turn.kind

    @property
    def conversation(self) -> Conversation:
        return self.store.turn(self.id).turn.conversation

    @property
    def superseded(self) -> bool:
        return self.store.turn(self.id).superseded_by is not None

    @property
    def next_state(self) -> tuple[Message, ...]:
        known = self.store.turn(self.id).next_state
        return () if known is None else known.messages

    @property
    def said(self) -> tuple[str | None, ...]:
        """The texts of the next state."""
        return tuple(message.content for message in self.next_state)


class Memory:
    """A store in memory, and the turns in the order in which they were stored."""

    def __init__(self) -> None:
        self.store = store_in_memory()
        self.rows: list[Row] = []

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def ask(
        self,
        conversation: Conversation,
        response: Message | Callable[[str], Message],
        *,
        scope: str = SCOPE,
        client: ClientSession | None = None,
        streamed: bool = True,
        delivered: bool = True,
    ) -> Row:
        """One request, served with `response` (made from the turn's id if it has calls) and stored."""
        now = float(len(self.rows))
        turn = turn_id(1000.0 + now, len(self.rows).to_bytes(10))
        incoming = read_request(
            turn=turn,
            scope=scope,
            conversation=conversation,
            client=client or ClientSession(),
            streamed=streamed,
        )
        bound = bind_request(self.store, incoming, teaches=True, now=now)
        said = response(turn) if callable(response) else response
        binding = bound.binding
        stored = a_turn(
            turn,
            scope=scope,
            session=binding.session,
            parent=binding.parent,
            kind=bound.kind,
            created=now,
            conversation=conversation,
            message=said,
        )
        store_turn(self.store, bound, stored, own=(turn,), now=now)
        if delivered:
            self.store.delivered([turn])
        row = Row(store=self.store, incoming=incoming, binding=binding, response=said)
        self.rows.append(row)
        return row


def says(role: str, content: str | None = None, **fields: Any) -> Message:
    return Message(role=role, content=content, **fields)


def talk(*messages: Message) -> Conversation:
    return Conversation(messages=messages)


def calls(
    name: str, arguments: str = "{}", *, content: str | None = None, n: int = 1
) -> Callable[[str], Message]:
    """A response with `n` calls of a tool, whose ids are the turn's."""

    def response(turn: str) -> Message:
        made = tuple(ToolCall(id=call_id(turn, index), name=name, arguments=arguments) for index in range(n))
        return Message(role="assistant", content=content, tool_calls=made)

    return response


HI, MORE = says("user", "Hi"), says("user", "More, please")
HELLO, SURE = says("assistant", "Hello!"), says("assistant", "Sure.")
FINE = says("assistant", "They pass.")


def recorded(name: str) -> list[dict[str, Any]]:
    """A client's requests, in order."""
    return json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))


def replay(
    name: str, memory: Memory | None = None, parse: Callable[..., Conversation] | None = None
) -> list[Row]:
    """Serve a recorded client. Our tool-call ids replace the recorded ones."""
    memory = memory or Memory()
    ours: dict[str, str] = {}
    rows = []
    for request in recorded(name):
        text = json.dumps(request["messages"])
        for theirs, our in ours.items():
            text = text.replace(theirs, our).replace(theirs.replace("_", ""), our)
        body = {
            "messages": json.loads(text),
            "stream": request["stream"],
            "tools": [{"type": "function", "function": {"name": name}} for name in request["tools"]],
        }
        conversation = (parse or chat)(body)

        def response(turn: str, request: dict[str, Any] = request) -> Message:
            said = (parse or chat)({"messages": [request["response"]], "tools": []}).messages[0]
            made = []
            for index, call in enumerate(said.tool_calls):
                ours[call.id] = call_id(turn, index)
                made.append(replace(call, id=ours[call.id]))
            return replace(said, tool_calls=tuple(made))

        client = client_session_of(request["headers"], body)
        rows.append(memory.ask(conversation, response, client=client, streamed=request["stream"]))
    return rows


def chat(body: dict[str, Any]) -> Conversation:
    return OPENAI_CHAT.parse(body, GatewaySettings().request_limits).conversation


def tree(rows: list[Row]) -> list[tuple[str, int | None, int]]:
    """Per turn: its kind, its parent's place in `rows`, and that of the turn its session is named after."""
    place = {row.id: index for index, row in enumerate(rows)}
    return [
        (
            row.kind.value,
            None if row.binding.parent is None else place[row.binding.parent],
            place[row.binding.session],
        )
        for row in rows
    ]
