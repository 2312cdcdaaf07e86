"""Turns, and one of them with its tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from afterwit.gateway.context import Gateway
from afterwit.lifecycle import Reason, State
from afterwit.message import Message
from afterwit.page.view import Wanted, before, chosen, number
from afterwit.store import Filter, Store
from afterwit.turn import Kind, Sampled, Turn

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


BROKEN = "\ufffd"

LONGEST_CHARACTER = 4
"""Tokens that one character takes at most."""

DOUBTS = (0.9, 0.5, 0.2, 0.05)
"""A token's doubt is the number of these probabilities that it had less than."""

PUSHES = (0.02, 0.2, 0.8)
"""A token's push is the number of these advantages that its own, without the sign, is above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One token, or the few that make one character."""

    text: str
    first: int
    """Its place in the response."""
    logprob: float
    """The sum, if they are several."""
    version: int
    forced: bool
    advantage: float | None = None
    """Of an update, the strongest if they are several tokens; None: not known."""

    @property
    def probability(self) -> float:
        """That the policy sampled it with."""
        return math.exp(min(self.logprob, 0.0))

    @property
    def doubt(self) -> int:
        """0: the policy was sure of it, to 4: it was unlikely."""
        return sum(self.probability < bound for bound in DOUBTS)

    @property
    def push(self) -> str:
        """`none`, or `up` or `down` with its strength from 1 to 3."""
        strength = sum(abs(self.advantage or 0.0) > bound for bound in PUSHES)
        return f"{'up' if (self.advantage or 0.0) > 0 else 'down'}{strength}" if strength else "none"


def tokens_of(
    sampled: Sampled,
    decode: Callable[[Sequence[int]], str],
    *,
    limit: int,
    advantages: Sequence[float] = (),
) -> list[Token]:
    """The first `limit` tokens, with the advantage of each id if they are known. Tokens that are a part of a
    character only are put together."""
    return [
        Token(
            text=text,
            first=start,
            logprob=math.fsum(sampled.logprobs[start:end]),
            version=sampled.versions[start],
            forced=all(sampled.forced[start:end]),
            advantage=max(advantages[start:end], key=abs, default=None),
        )
        for start, end, text in _pieces(sampled.ids[:limit], decode)
    ]


def _pieces(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[tuple[int, int, str]]:
    """Start, end and text of the shortest runs of ids that are whole characters."""
    start = 0
    while start < len(ids):
        ends = range(start + 1, min(start + LONGEST_CHARACTER, len(ids)) + 1)
        whole = (end for end in ends if BROKEN not in decode(ids[start:end]))
        end = next(whole, start + 1)
        yield start, end, decode(ids[start:end])
        start = end
