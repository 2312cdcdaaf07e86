"""A request bound to its session and its parent turn: what core decides, done in one call of the store."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from afterwit.core.binding.bind import Binding, IncomingRequest, added_messages, bind
from afterwit.core.binding.siblings import Resolution, resolve
from afterwit.core.turn import Kind
from afterwit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where a request stands."""

    incoming: IncomingRequest
    binding: Binding
    kind: Kind
    """As its siblings leave it so far."""
    answered: bool
    """It added_messages the next state of an earlier turn."""


def bind_request(store: Store, incoming: IncomingRequest, scope: str, *, teaches: bool, now: float) -> Bound:
    """Bind a request, and record what it says of earlier turns: nothing where its key does not teach."""
    found = store.candidates(
        scope, incoming.hashes, incoming.named, client_session=incoming.client_session_hash
    )
    binding = bind(incoming, found)
    resolved = _resolved(store, binding, own=(incoming.turn,))
    if teaches:
        _apply(store, resolved, now)
    answers = binding.answers if binding.rejects or resolved.answers else None
    if answers is not None and teaches:
        store.answer(answers, binding.next_state, answered_by=incoming.turn, now=now)
    return Bound(
        incoming=incoming,
        binding=binding,
        kind=resolved.kind,
        answered=teaches and (answers is not None or resolved.confirmed is not None),
    )


def resolve_again(store: Store, bound: Bound, *, own: Collection[str], now: float) -> Kind:
    """The kind of a turn that is about to be stored: siblings may have come while it was sampled.

    `own` are the turns of its own response: they contend with nobody.
    """
    if bound.binding.parent is None:
        return bound.kind
    resolved = _resolved(store, bound.binding, own=own)
    _apply(store, resolved, now)
    return resolved.kind


def _resolved(store: Store, binding: Binding, *, own: Collection[str]) -> Resolution:
    if binding.parent is None:
        return resolve(binding.kind, parent=None, siblings=())
    apart = {binding.retry_of, binding.rejects, *own}
    siblings = [branch for branch in store.branches(binding.parent) if branch.turn not in apart]
    return resolve(binding.kind, parent=store.branch(binding.parent), siblings=siblings)


def _apply(store: Store, resolved: Resolution, now: float) -> None:
    """What an incoming decides of earlier turns."""
    for turn, kind in resolved.changes:
        store.set_kind(turn, kind, now=now)
    if resolved.confirmed is not None:
        _answer_again(store, resolved.confirmed, now)


def _answer_again(store: Store, confirmed: str, now: float) -> None:
    """A turn is known to be the conversation only now: what it added is its own parent's next state."""
    turn = store.turn(confirmed).turn
    if turn.parent is None:
        return
    messages = added_messages(turn.conversation.messages, turn.parent, store.full_depth(turn.parent))
    if messages:
        store.answer(turn.parent, messages, answered_by=confirmed, now=now)
