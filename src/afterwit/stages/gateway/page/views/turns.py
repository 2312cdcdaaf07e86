"""Turns, and one of them with its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from afterwit.core.lifecycle import Reason, State
from afterwit.core.message import Message
from afterwit.core.turn import Kind, Turn
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.page.tokens import Token, tokens_of
from afterwit.stages.gateway.page.views.view import Wanted, before, chosen, number
from afterwit.store import Filter, Store

PAGE = 50
MESSAGES = 4
"""Messages of the prompt that are shown first; the others are behind a link."""
CHARACTERS = 6_000
"""Of one message that are shown: its end."""
TOKENS = 2_000
"""Of a response that are shown one by one."""
TABLE = 400
"""Of these, in the table."""


def view(request: Request, gateway: Gateway) -> Wanted:
    """Turns, the newest first, of a state, a reason or a kind."""
    start = before(request)
    state, reason = chosen(request, "state", State), chosen(request, "reason", Reason)
    kind = chosen(request, "kind", Kind)
    version = number(request.query_params.get("version", ""))
    where = Filter(state=state, reason=reason, kind=kind, version=version)
    fields = {"state": state, "reason": reason, "kind": kind, "version": version}
    asked = urlencode({name: value for name, value in fields.items() if value is not None})

    def read(store: Store) -> Mapping[str, Any]:
        found = store.turn_lines(where, before=start, limit=PAGE + 1)
        return {
            "turns": found[:PAGE],
            "older": found[PAGE - 1].seq if len(found) > PAGE else None,
            "first_page": start is None,
            "where": where,
            "asked": asked,
            "states": list(State),
        }

    return Wanted(template="turns.html", read=read)


def one(request: Request, gateway: Gateway) -> Wanted:
    """A turn: the end of its prompt, its response token by token, what followed, votes, hints."""
    whole = "all" in request.query_params

    def read(store: Store) -> Mapping[str, Any]:
        record = store.turn(store.resolve(request.path_params["turn"]))
        turn = record.turn
        messages = turn.conversation.messages
        effects = [(each.version, each.effect) for each in store.learned(turns=[turn.id]) if each.effect]
        taught, advantages = next(
            ((version, effect.advantages) for version, effect in reversed(effects) if effect.advantages),
            (None, ()),
        )
        kept = messages if whole else messages[-MESSAGES:]
        return {
            "record": record,
            "turn": turn,
            "sampled": turn.sampled if isinstance(turn, Turn) else None,
            "messages": [_cut(message, whole=whole) for message in kept],
            "earlier": len(messages) - len(kept),
            "followed": [
                _cut(message, whole=whole)
                for message in (record.next_state.messages if record.next_state else ())
            ],
            "tokens": _tokens(turn, gateway, advantages),
            "taught": taught,
            "effects": effects,
            "whole": whole,
            "most": TABLE,
        }

    return Wanted(template="turn.html", read=read)


def _tokens(turn: object, gateway: Gateway, advantages: Sequence[float]) -> list[Token]:
    if not isinstance(turn, Turn):
        return []
    return tokens_of(turn.sampled, gateway.renderer.decode, limit=TOKENS, advantages=advantages)


def _cut(message: Message, *, whole: bool) -> dict[str, Any]:
    """A message as it is shown: a long one by its end."""
    text = message.content or ""
    left_out = 0 if whole else max(0, len(text) - CHARACTERS)
    return {"role": message.role, "text": text[left_out:], "left_out": left_out, "calls": message.tool_calls}
