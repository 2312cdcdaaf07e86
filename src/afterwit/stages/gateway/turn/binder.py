"""A request bound to its session and its parent turn: what core decides, done in one call of the store."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from afterwit.core.binding.bind import Arrival, Binding, bind, brought
from afterwit.core.binding.siblings import Settled, settle
from afterwit.core.turn import Kind
from afterwit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where a request stands."""

    arrival: Arrival
    binding: Binding
    kind: Kind
    """As its siblings leave it so far."""
    answered: bool
    """It brought the next state of an earlier turn."""


def bind_request(store: Store, arrival: Arrival, scope: str, *, teaches: bool, now: float) -> Bound:
    """Bind a request, and record what it says of earlier turns: nothing where its key does not teach."""
    found = store.candidates(scope, arrival.hashes, arrival.named, home=arrival.home)
    binding = bind(arrival, found)
    settled = _settled(store, binding, own=(arrival.turn,))
    if teaches:
        _apply(store, settled, now)
    answers = binding.answers if binding.rejects or settled.answers else None
    if answers is not None and teaches:
        store.answer(answers, binding.next_state, answered_by=arrival.turn, now=now)
    return Bound(
        arrival=arrival,
        binding=binding,
        kind=settled.kind,
        answered=teaches and (answers is not None or settled.grown is not None),
    )


def settle_again(store: Store, bound: Bound, *, own: Collection[str], now: float) -> Kind:
    """The kind of a turn that is about to be stored: siblings may have come while it was sampled.

    `own` are the turns of its own response: they contend with nobody.
    """
    if bound.binding.parent is None:
        return bound.kind
    settled = _settled(store, bound.binding, own=own)
    _apply(store, settled, now)
    return settled.kind


def _settled(store: Store, binding: Binding, *, own: Collection[str]) -> Settled:
    if binding.parent is None:
        return settle(binding.kind, parent=None, siblings=())
    apart = {binding.retry_of, binding.rejects, *own}
    siblings = [branch for branch in store.branches(binding.parent) if branch.turn not in apart]
    return settle(binding.kind, parent=store.branch(binding.parent), siblings=siblings)


def _apply(store: Store, settled: Settled, now: float) -> None:
    """What an arrival decides of earlier turns."""
    for turn, kind in settled.changes:
        store.set_kind(turn, kind, now=now)
    if settled.grown is not None:
        _answer_again(store, settled.grown, now)


def _answer_again(store: Store, grown: str, now: float) -> None:
    """A turn is known to be the conversation only now: what it brought is its own parent's next state."""
    turn = store.turn(grown).turn
    if turn.parent is None:
        return
    messages = brought(turn.conversation.messages, turn.parent, store.full_depth(turn.parent))
    if messages:
        store.answer(turn.parent, messages, answered_by=grown, now=now)
