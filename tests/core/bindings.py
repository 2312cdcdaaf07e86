"""A double of store and gateway: remembers turns in a dict and acts on what the pure code decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afterwit.core.binding.bind import (
    Binding,
    Candidate,
    ClientSession,
    IncomingRequest,
    added_messages,
    bind,
    client_session_of,
    read_request,
)
from afterwit.core.binding.siblings import Branch, resolve
from afterwit.core.ids import call_id, turn_id
from afterwit.core.message import Conversation, Message, ToolCall
from afterwit.core.turn import Kind
from afterwit.stages.gateway.settings import GatewaySettings
from afterwit.wire.openai_chat import OPENAI_CHAT

FIXTURES = Path(__file__).parent / "fixtures"
SCOPE = "key/client"


@dataclass(slots=True, kw_only=True)
class Row:
    """A stored turn."""

    incoming: IncomingRequest
    binding: Binding
    scope: str
    response: Message
    delivered: bool
    kind: Kind
    number: int
    superseded: bool = False
    next_state: tuple[Message, ...] = ()

    @property
    def id(self) -> str:
        return self.incoming.turn

    @property
    def said(self) -> tuple[str | None, ...]:
        """The texts of the next state."""
        return tuple(message.content for message in self.next_state)


class Memory:
    """Turns in the order in which they were stored."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows.values())

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
        """One request, served with `response` (made from the turn's id where it has calls) and stored."""
        number = len(self.rows)
        turn = turn_id(1000.0 + number, number.to_bytes(10))
        incoming = read_request(
            turn=turn,
            scope=scope,
            conversation=conversation,
            client=client or ClientSession(),
            streamed=streamed,
        )
        binding = bind(incoming, self.candidates(incoming, scope))
        kind = self._settle(binding)
        row = Row(
            incoming=incoming,
            binding=binding,
            scope=scope,
            response=response(turn) if callable(response) else response,
            delivered=delivered,
            kind=kind,
            number=number,
        )
        self.rows[turn] = row
        if binding.retry_of is not None:
            self.rows[binding.retry_of].superseded = True
        return row

    def candidates(self, incoming: IncomingRequest, scope: str) -> list[Candidate]:
        """What the store would find: by hash, by tool-call id, and recent side replies."""
        hashes = set(incoming.hashes)
        found = []
        for row in self:
            candidate = self._candidate(row)
            hit = {candidate.prompt_hash, candidate.full_hash} & hashes or row.id in incoming.named
            if row.scope == scope and (hit or row.kind is Kind.SIDE):
                found.append(candidate)
        return found + self._newest_of_client_session(incoming)

    def _newest_of_client_session(self, incoming: IncomingRequest) -> list[Candidate]:
        main = [
            row
            for row in self
            if row.kind is Kind.MAIN
            and row.incoming.client_session_hash == incoming.client_session_hash is not None
        ]
        return [replace(self._candidate(row), newest=True) for row in main[-1:]]

    def _candidate(self, row: Row) -> Candidate:
        full_hash, full_depth = row.incoming.full(row.response)
        return Candidate(
            turn=row.id,
            session=row.binding.session,
            parent=row.binding.parent,
            prompt_hash=row.incoming.prompt_hash,
            full_hash=full_hash,
            depth=row.incoming.depth,
            full_depth=full_depth,
            delivered=row.delivered,
            kind=row.kind,
            created=float(row.number),
            children=self._children(row.id),
            side_text=row.response.content if row.kind is Kind.SIDE else None,
            shape=row.incoming.shape,
        )

    def _children(self, turn: str) -> int:
        return sum(row.binding.parent == turn and row.kind is not Kind.SIDE for row in self)

    def _branch(self, row: Row) -> Branch:
        return Branch(
            turn=row.id, kind=row.kind, children=self._children(row.id), answered=bool(row.next_state)
        )

    def _settle(self, binding: Binding) -> Kind:
        parent = None if binding.parent is None else self._branch(self.rows[binding.parent])
        siblings = [
            self._branch(row)
            for row in self
            if parent is not None
            and row.binding.parent == parent.turn
            and row.id not in (binding.retry_of, binding.rejects)
            and row.delivered
            and not row.superseded
        ]
        resolved = resolve(binding.kind, parent=parent, siblings=siblings)
        for turn, kind in resolved.changes:
            self.rows[turn].kind = kind
        if resolved.confirmed is not None:
            self._reanswer(self.rows[resolved.confirmed])
        if binding.answers is not None and (binding.rejects or resolved.answers):
            self.rows[binding.answers].next_state = binding.next_state
        return resolved.kind

    def _reanswer(self, confirmed: Row) -> None:
        if confirmed.binding.parent is not None:
            parent = self.rows[confirmed.binding.parent]
            depth = parent.incoming.full(parent.response)[1]
            parent.next_state = added_messages(confirmed.incoming.messages, parent.id, depth)


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


def recorded(name: str) -> list[dict[str, Any]]:
    """A client's requests, in order."""
    return json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))


def replay(
    name: str, memory: Memory | None = None, parse: Callable[..., Conversation] | None = None
) -> list[Row]:
    """Serve a recorded client. Our tool-call ids take the place of those that it was given then."""
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
