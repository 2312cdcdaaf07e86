"""The binder over a store, without HTTP, rendering or sampling: thousands of sessions in a minute."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.binding.request import client_session_of, read_request
from afterwit.gateway.auth import Caller, Permission, scope_of
from afterwit.gateway.prepare import Bound, bind_request, store_turn
from afterwit.store import Record, Store
from afterwit.turn import ENTROPY_BYTES, Conversation, Finish, Sampled, Sampling, Turn, turn_id
from experiments.replay.hosts.port import Served, answered
from experiments.replay.traffic import Ask

CALLER = Caller(name="replay", scopes=frozenset(Permission))


class BinderHost:
    """Serves in the order of asking: of requests that arrive together, all are bound before one is stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._count = 0

    async def serve(self, asks: Sequence[Ask]) -> list[Served]:
        bound = [self._bound(ask) for ask in asks]
        return [self._stored(ask, one) for ask, one in zip(asks, bound, strict=True)]

    async def records(self) -> dict[str, Record]:
        return {record.turn.id: record for record in self._store.turns()}

    def _bound(self, ask: Ask) -> Bound:
        self._count += 1
        turn = turn_id(float(self._count), self._count.to_bytes(ENTROPY_BYTES))
        scope = scope_of(CALLER, ask.headers.get("user-agent"))
        tools = tuple({"type": "function", "function": {"name": name}} for name in ask.tools)
        incoming = read_request(
            turn=turn,
            scope=scope,
            conversation=Conversation(messages=ask.messages, tools=tools),
            client=client_session_of(ask.headers, {}),
            streamed=ask.streamed,
        )
        return bind_request(self._store, incoming, teaches=True, now=float(self._count))

    def _stored(self, ask: Ask, bound: Bound) -> Served:
        self._count += 1
        incoming, now = bound.incoming, float(self._count)
        answer = answered(ask.reply, incoming.turn)
        tools = tuple({"type": "function", "function": {"name": name}} for name in ask.tools)
        turn = Turn(
            id=incoming.turn,
            scope=incoming.scope,
            session=bound.binding.session,
            parent=bound.binding.parent,
            kind=bound.kind,
            created=now,
            model="replay",
            conversation=Conversation(messages=ask.messages, tools=tools),
            prompt_ids=(1,),
            sampling=Sampling(max_tokens=8),
            sampled=Sampled(ids=(1,), logprobs=(-1.0,), versions=(0,), forced=(False,)),
            message=answer,
            finish=Finish.STOP if ask.arrives else Finish.CLIENT_LEFT,
        )
        store_turn(self._store, bound, turn, own=(turn.id,), now=now)
        if ask.arrives:
            self._store.delivered([turn.id])
        return Served(ask=ask, turn=turn.id, answer=answer)
