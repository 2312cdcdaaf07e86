"""The evidence of kinship: which stored turns a request follows, rejects or quotes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from afterwit.core.binding.client_text import without_retelling
from afterwit.core.binding.request import IncomingRequest, after_call
from afterwit.core.binding.segments import collapse, plain_text
from afterwit.core.binding.side_turns import Shape
from afterwit.core.turn import Kind

LONG_REPLY = 80
"""Characters from which a side reply that is quoted is no coincidence: titles are shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A stored turn of the same scope that a request may follow, repeat or reject."""

    turn: str
    session: str
    parent: str | None
    prompt_hash: bytes
    full_hash: bytes
    depth: int
    """Segments of the prompt."""
    full_depth: int
    """Segments of prompt and response."""
    delivered: bool
    kind: Kind
    created: float
    children: int
    side_text: str | None = None
    """The reply of a recent side turn."""
    shape: Shape | None = None
    """How its request was made; None where that was not kept."""
    newest: bool = False
    """It is the newest main-line turn under the session id that the client sends."""

    @property
    def arrived(self) -> bool:
        """Whether the client has the answer: it was delivered, or the conversation goes on from it."""
        return self.delivered or self.children > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A turn that the request follows, and the index of the first message after its response."""

    candidate: Candidate
    after: int


def followed(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> list[Followed]:
    """The turn that a request follows; several where it cannot be told which; none for a new conversation.

    Evidence deeper in the request is better. A tool-call id of ours beats a prefix that ends before it: what
    stands between was rewritten, the id was not.
    """
    by_prefix = _by_prefix(incoming, candidates)
    called = _by_call(incoming, candidates)
    if called is not None and all(called.after > prefix.after for prefix in by_prefix):
        return [called]
    return by_prefix


def _by_prefix(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> list[Followed]:
    """Turns whose prompt and own response are the request's longest such prefix; one, unless ambiguous."""
    full = [
        c for c in candidates if c.full_depth > c.depth and incoming.starts_with(c.full_hash, c.full_depth)
    ]
    deepest = max((c.full_depth for c in full), default=0)
    longest = [c for c in full if c.full_depth == deepest]
    longest = [c for c in longest if c.delivered] or longest
    families = {(c.session, c.parent or c.turn) for c in longest}
    if len(families) == 1:
        longest = [max(longest, key=_age)]
    return [Followed(candidate=c, after=incoming.message_after(deepest)) for c in longest]


def _by_call(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> Followed | None:
    """The turn whose tool call is the last that the request names."""
    known = {candidate.turn: candidate for candidate in candidates}
    found = [(index, known[turn]) for turn, index in incoming.mentions.items() if turn in known]
    if not found:
        return None
    index, candidate = max(found, key=lambda pair: pair[0])
    return Followed(candidate=candidate, after=after_call(incoming.messages, index))


def rejected(
    incoming: IncomingRequest, candidates: Sequence[Candidate], parent: Followed | None
) -> Candidate | None:
    """The turn from whose prompt, but not whose response, the request goes on; None where that is uncertain.

    What comes next must not be an assistant's message: then the response was edited, and nobody complained.
    """
    start = 0 if parent is None else parent.after
    leaves = [
        c
        for c in candidates
        if 0 < c.depth < incoming.depth
        and c.delivered
        and not c.children
        and c.kind is not Kind.SIDE
        and incoming.starts_with(c.prompt_hash, c.depth)
        and incoming.message_after(c.depth) >= start
        and (parent is None or c.turn != parent.candidate.turn)
    ]
    deepest = max((c.depth for c in leaves), default=0)
    last = [c for c in leaves if c.depth == deepest]
    if len({c.session for c in last}) != 1:
        return None
    onward = incoming.messages[incoming.segments[deepest].message]
    return None if onward.role == "assistant" else latest(last)


def quoted(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> Candidate | None:
    """The side turn, a summary, whose reply stands in this conversation: a compacted form of an older one."""
    texts = [plain_text(message) for message in incoming.messages]
    return latest(c for c in candidates if _is_quoted(c.side_text or "", texts))


def usual_shapes(candidates: Sequence[Candidate], session: str) -> set[Shape]:
    """How the requests of a session's conversation were made, as far as they are among the candidates."""
    main = (c for c in candidates if c.session == session and c.kind is not Kind.SIDE)
    return {c.shape for c in main if c.shape is not None}


def newest_of_client_session(candidates: Sequence[Candidate]) -> Candidate | None:
    """The turn whose session a side turn serves that has a prompt of its own, where the client's id tells."""
    return latest(c for c in candidates if c.newest)


def _is_quoted(reply: str, texts: Sequence[str]) -> bool:
    reply = collapse(without_retelling(reply))
    return len(reply) >= LONG_REPLY and any(reply in text for text in texts)


def _age(candidate: Candidate) -> tuple[float, str]:
    return candidate.created, candidate.turn


def latest(candidates: Iterable[Candidate]) -> Candidate | None:
    return max(candidates, key=_age, default=None)
