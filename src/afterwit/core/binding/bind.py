"""Binding: which session a request belongs to, which turn it follows, and what it says about that turn.

A stored turn leaves two fingerprints: of its prompt, and of its prompt with its own response. A request whose
prefix is the second follows that turn; one whose prefix is only the first rejected its response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterwit.core.binding.client_ids import ClientSession as ClientSession
from afterwit.core.binding.client_ids import client_session_of as client_session_of
from afterwit.core.binding.parents import Candidate as Candidate
from afterwit.core.binding.parents import (
    Followed,
    followed,
    latest,
    newest_of_client_session,
    quoted,
    rejected,
    usual_shapes,
)
from afterwit.core.binding.request import IncomingRequest as IncomingRequest
from afterwit.core.binding.request import added_messages as added_messages
from afterwit.core.binding.request import next_state
from afterwit.core.binding.request import read_request as read_request
from afterwit.core.binding.side_turns import Pattern, classify, known_patterns
from afterwit.core.lifecycle import Reason
from afterwit.core.message import Message
from afterwit.core.turn import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Where a request stands, and which turn its last messages answer."""

    session: str
    parent: str | None
    kind: Kind
    """MAIN or SIDE as the request itself shows; among siblings `lines.settle` has the last word."""
    retry_of: str | None = None
    """The turn that this one supersedes: the same prompt, whose answer had not arrived."""
    rejects: str | None = None
    """The turn whose response was taken out: `next_state` is the complaint."""
    answers: str | None = None
    """The turn that `next_state` answers: the rejected one, else the parent."""
    next_state: tuple[Message, ...] = ()
    reason: Reason | None = None
    """Why the turn cannot train, where binding itself says so."""


def bind(
    incoming: IncomingRequest, candidates: Sequence[Candidate], patterns: Sequence[Pattern] | None = None
) -> Binding:
    """Bind a request, given the stored turns of its scope that its `hashes` and `mentions` lead to.

    `patterns` are those of known side turns; None: the package's own.
    """
    others = [candidate for candidate in candidates if candidate.turn != incoming.turn]
    found = followed(incoming, others)
    parent = found[0] if len(found) == 1 else None
    same = latest(
        c for c in others if c.depth == incoming.depth > 0 and c.prompt_hash == incoming.prompt_hash
    )
    kind = _kind(incoming, None if parent is None else parent.candidate, others, patterns)
    if same is not None and not same.arrived:
        return _again(incoming, same, parent, kind, retried=True)
    if len(found) > 1:
        return Binding(session=incoming.turn, parent=None, kind=kind, reason=Reason.AMBIGUOUS_PARENT)
    if same is not None and same.parent is not None:
        return _again(incoming, same, parent, kind, retried=False)
    deleted = None if same is not None else rejected(incoming, others, parent)
    if deleted is not None:
        return _rejecting(incoming, deleted, _kind(incoming, deleted, others, patterns))
    if parent is not None:
        return _following(incoming, parent, kind)
    kin = quoted(incoming, others) or (newest_of_client_session(others) if kind is Kind.SIDE else None)
    return Binding(session=incoming.turn if kin is None else kin.session, parent=None, kind=kind)


def _kind(
    incoming: IncomingRequest,
    parent: Candidate | None,
    candidates: Sequence[Candidate],
    patterns: Sequence[Pattern] | None,
) -> Kind:
    return classify(
        incoming.messages,
        said=incoming.client.turn_type,
        shape=incoming.shape,
        usual=() if parent is None else usual_shapes(candidates, parent.session),
        parent=None if parent is None else parent.kind,
        patterns=known_patterns() if patterns is None else patterns,
    )


def _following(incoming: IncomingRequest, parent: Followed, kind: Kind) -> Binding:
    messages = next_state(incoming.messages[parent.after :], kind)
    return Binding(
        session=parent.candidate.session,
        parent=parent.candidate.turn,
        kind=kind,
        answers=parent.candidate.turn if messages else None,
        next_state=messages,
    )


def _again(
    incoming: IncomingRequest, same: Candidate, parent: Followed | None, kind: Kind, *, retried: bool
) -> Binding:
    """The same prompt once more: it stands where the earlier turn stands."""
    messages: tuple[Message, ...] = ()
    if parent is not None and parent.candidate.turn == same.parent:
        messages = next_state(incoming.messages[parent.after :], kind)
    return Binding(
        session=same.session,
        parent=same.parent,
        kind=kind,
        retry_of=same.turn if retried else None,
        answers=same.parent if messages else None,
        next_state=messages,
    )


def _rejecting(incoming: IncomingRequest, deleted: Candidate, kind: Kind) -> Binding:
    """A sibling of the turn whose response was taken out, which what follows answers."""
    messages = next_state(incoming.messages[incoming.message_after(deleted.depth) :], kind)
    return Binding(
        session=deleted.session,
        parent=deleted.parent,
        kind=kind,
        rejects=deleted.turn,
        answers=deleted.turn if messages else None,
        next_state=messages,
    )
