"""Binds requests to what the store holds, and records what they tell about earlier turns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from afterwit.binding.bind import Binding, Resolution, bind, resolve
from afterwit.binding.evidence import continued_sessions, resumed, with_replies
from afterwit.binding.next_state import added_messages
from afterwit.binding.request import IncomingRequest
from afterwit.binding.side_turns import auxiliary_session, earlier_auxiliaries, may_be_auxiliary
from afterwit.errors import TurnNotFound
from afterwit.store import ParentLookup, Store
from afterwit.turn import Kind, Turn
from afterwit.verdict import untrainable


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A request with its place in its session."""

    incoming: IncomingRequest
    binding: Binding
    kind: Kind
    """The request's kind, given its siblings so far."""
    answered: bool
    """Whether it holds the next state of an earlier turn."""


def bind_request(store: Store, incoming: IncomingRequest, *, teaches: bool, now: float) -> Bound:
    """Bind a request. If its key teaches, record the next states that it holds."""
    with store.binding(incoming.scope):
        binding = look_up(store, incoming)
        resolved = _resolved(store, binding, own=(incoming.turn,))
        answers = binding.answers
        if binding.parent is not None and not binding.rejects and not resolved.answers:
            answers = None
        if teaches:
            _apply(store, resolved, now)
            if answers is not None:
                store.answer(answers, binding.next_state, answered_by=incoming.turn, now=now)
            if binding.confirms is not None:
                store.set_kind(binding.confirms, Kind.MAIN, session=binding.session, now=now)
                _answer_again(store, binding.confirms, now)
    answered = teaches and (answers is not None or resolved.confirmed is not None)
    return Bound(incoming=incoming, binding=binding, kind=resolved.kind, answered=answered)


def look_up(store: ParentLookup, incoming: IncomingRequest) -> Binding:
    """Bind a request to what the store holds.

    A session's turns are looked up only if the request is known to go on in it. Recent conversations are
    looked up only if the request has no parent, or one that seemed to be beside a conversation: it may be
    about one, or go on from its end.
    """
    scope, session = incoming.scope, incoming.client_session_hash
    found = store.candidates(scope, incoming.hashes, incoming.named, client_session=session)
    if sessions := continued_sessions(incoming, found):
        found = with_replies(found, store.replies(scope, sessions))
    binding = bind(incoming, found) if found else None
    if binding is not None and (binding.parent or binding.reason) and not binding.confirms:
        return binding
    recent = store.recent(scope)
    if sessions := resumed(incoming, recent):
        found = with_replies(found, store.replies(scope, sessions))
    return bind(incoming, found, recent)


def store_turn(store: Store, bound: Bound, turn: Turn, *, own: Collection[str], now: float) -> None:
    """Store a turn of a bound request. `own`: the turns of its response; the first may be a retry."""
    incoming, binding = bound.incoming, bound.binding
    full_hash, full_depth = incoming.full(turn.message)
    with store.binding(incoming.scope):
        kind = _kind_now(store, bound, own, now)
        settled = turn if turn.kind is kind else replace(turn, kind=kind)
        store.add_turn(
            settled,
            prompt_hash=incoming.prompt_hash,
            full_hash=full_hash,
            depth=incoming.depth,
            full_depth=full_depth,
            delivered=False,
            reason=untrainable(settled) or binding.reason,
            now=now,
            shape=incoming.shape,
            client_session=incoming.client_session_hash,
            supersedes=binding.retry_of if turn.id == incoming.turn else None,
        )
        if incoming.client.done:
            store.end_session(settled.session, now=now)


def _kind_now(store: Store, bound: Bound, own: Collection[str], now: float) -> Kind:
    """The kind of a turn that is about to be stored: siblings may have come while it was sampled.

    Titles are asked for while the first answer is sampled: the one that is stored last finds the other.
    """
    incoming = bound.incoming
    if bound.binding.parent is not None:
        resolved = _resolved(store, bound.binding, own=own)
        _apply(store, resolved, now)
        return resolved.kind
    begins = bound.kind is Kind.MAIN and incoming.shape.tools
    unsaid = incoming.client.turn_type is None and may_be_auxiliary(incoming)
    if not begins and not unsaid:
        return bound.kind
    recent = [one for one in store.recent(incoming.scope) if one.turn not in own]
    for auxiliary in earlier_auxiliaries(incoming, recent) if begins else ():
        known = store.candidate(auxiliary)
        if known is None or not known.children:  # no other turn follows it
            store.set_kind(auxiliary, Kind.SIDE, now=now)
    return Kind.SIDE if unsaid and auxiliary_session(incoming, recent) is not None else bound.kind


def _resolved(store: Store, binding: Binding, *, own: Collection[str]) -> Resolution:
    if binding.parent is None:
        return resolve(binding.kind, parent=None, siblings=())
    apart = {binding.retry_of, binding.rejects, *own}
    siblings = [child for child in store.children(binding.parent) if child.turn not in apart]
    return resolve(binding.kind, parent=store.candidate(binding.parent), siblings=siblings)


def _apply(store: Store, resolved: Resolution, now: float) -> None:
    """Record the changes that a request makes to earlier turns."""
    for turn, kind in resolved.changes:
        store.set_kind(turn, kind, now=now)
    if resolved.confirmed is not None:
        _answer_again(store, resolved.confirmed, now)


def _answer_again(store: Store, confirmed: str, now: float) -> None:
    """A turn turned out to be on the main line: the messages it added are its own parent's next state."""
    turn = store.turn(confirmed).turn
    if turn.parent is None or (parent := store.candidate(turn.parent)) is None:
        return
    try:
        before = store.turn(turn.parent).turn
    except TurnNotFound:  # its content was pruned, so it cannot train
        return
    messages = added_messages(turn.conversation.messages, before, parent.full_depth)
    if messages:
        store.answer(turn.parent, messages, answered_by=confirmed, now=now)
