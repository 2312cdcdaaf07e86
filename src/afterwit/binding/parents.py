"""Parent lookup: which stored turns a request follows, repeats, rejects or quotes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from afterwit.binding.client_text import is_handoff
from afterwit.binding.request import IncomingRequest
from afterwit.binding.segments import CALL, plain_text
from afterwit.binding.side_turns import Shape, alike
from afterwit.binding.silence import goes_on
from afterwit.ids import call_id, plain_id, turn_of_call
from afterwit.message import Message
from afterwit.turn import Kind

LONG_REPLY = 80
"""A quoted side reply of at least this many characters is not a coincidence: titles are shorter."""


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
    answered: bool = False
    """Messages that follow it are known."""
    reply: str | None = None
    """Its reply as it is compared; None if it was not looked up."""
    said: tuple[tuple[str, ...], ...] = ()
    """The segments of the reply, by their parts, if it was looked up."""
    shape: Shape | None = None
    """How its request was made; None if that was not kept."""
    newest: bool = False
    """Whether it is the newest main-line turn under the session id that the client sends."""

    @property
    def silent(self) -> bool:
        """Whether the reply has no visible text and no call."""
        return self.full_depth == self.depth

    @property
    def calls(self) -> bool:
        """Whether the reply calls tools, if it was looked up."""
        return any(parts[0] == CALL for parts in self.said)

    @property
    def arrived(self) -> bool:
        """Whether the client has the answer: it was delivered, or the conversation goes on from it."""
        return self.delivered or self.children > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A turn that the request follows, and the index of the first message after its response."""

    candidate: Candidate
    after: int
    behind: tuple[Message, ...] = ()
    """What answers before that: the rest of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """A side turn whose reply the request quotes, and the index of the message that does."""

    candidate: Candidate
    message: int


def followed(
    incoming: IncomingRequest,
    candidates: Sequence[Candidate],
    summary: Quoted | None,
    sessions: Collection[str] = (),
) -> list[Followed]:
    """The turn that a request follows; several if that is ambiguous, none for a new conversation.

    The deepest match in the request wins. A tool-call id of ours, or a reply of a session that is known to
    continue here, beats a prefix that ends before it: the messages between were rewritten. `sessions` are
    further ones that are known to continue.
    """
    by_prefix = _by_prefix(incoming, candidates)
    called = _by_call(incoming, candidates)
    known = {*_continued(called, summary), *_of_prefix(incoming, by_prefix), *sessions}
    said = _by_reply(incoming, candidates, known)
    deepest = max((one for one in (called, said) if one is not None), key=lambda one: one.after, default=None)
    if deepest is not None and all(deepest.after > prefix.after for prefix in by_prefix):
        return [deepest]
    return by_prefix


def _by_prefix(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> list[Followed]:
    """Turns whose prompt and response are the longest such prefix of the request; one unless ambiguous.

    Of several, the one that the client names is meant.
    """
    full = [one for candidate in candidates if (one := _behind(incoming, candidate)) is not None]
    deepest = max((one.candidate.full_depth for one in full), default=0)
    longest = [one for one in full if one.candidate.full_depth == deepest]
    named = [one for one in longest if one.candidate.turn == incoming.follows]
    longest = named or [one for one in longest if one.candidate.delivered] or longest
    families = {(one.candidate.session, one.candidate.parent or one.candidate.turn) for one in longest}
    return [max(longest, key=lambda one: _age(one.candidate))] if len(families) == 1 else longest


def _behind(incoming: IncomingRequest, candidate: Candidate) -> Followed | None:
    """A turn with what is behind it, if its prompt and response begin the request."""
    if not candidate.silent:
        if not _is_prefix(incoming, candidate):
            return None
        return Followed(candidate=candidate, after=incoming.message_after(candidate.full_depth))
    if incoming.starts_with(candidate.full_hash, candidate.depth):
        after = incoming.message_after(candidate.depth)
        behind = next((one.parts[0] for one in incoming.segments[candidate.depth :]), None)
        on = goes_on(incoming.messages[after:], incoming.texts[after:], behind=behind)
        return Followed(candidate=candidate, after=after) if on and candidate.depth else None
    heads = (head for head in incoming.heads if head.fingerprint == candidate.full_hash)
    return next(
        (Followed(candidate=candidate, after=one.message + 1, behind=(one.rest,)) for one in heads), None
    )


def _is_prefix(incoming: IncomingRequest, candidate: Candidate) -> bool:
    """Whether the request begins with a turn's prompt and response, be its calls under other ids."""
    if incoming.starts_with(candidate.full_hash, candidate.full_depth):
        return True
    begins = candidate.depth > 0 and incoming.starts_with(candidate.prompt_hash, candidate.depth)
    return begins and renamed(incoming, candidate.depth, candidate.said)


def _by_call(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> Followed | None:
    """The turn whose tool call is the last that the request names."""
    known = {candidate.turn: candidate for candidate in candidates}
    found = [(index, known[turn]) for turn, index in incoming.mentions.items() if turn in known]
    found += [
        (index, known[turn])
        for turn, index in incoming.written.items()
        if turn in known and _is_behind(incoming, index, known[turn])
    ]
    if not found:
        return None
    index, candidate = max(found, key=lambda pair: pair[0])
    return Followed(candidate=candidate, after=incoming.after_call(index))


def _is_behind(incoming: IncomingRequest, index: int, candidate: Candidate) -> bool:
    """Whether a message stands right behind the prompt of a turn, as its reply does."""
    if not 0 < candidate.depth < incoming.depth:
        return False
    begins = incoming.starts_with(candidate.prompt_hash, candidate.depth)
    return begins and incoming.segments[candidate.depth].message == index


def _by_reply(
    incoming: IncomingRequest, candidates: Sequence[Candidate], sessions: Collection[str]
) -> Followed | None:
    """The newest turn whose reply is the last one of the request, of a session that continues here.

    A compaction drops prompts, but keeps the last replies behind its summary.
    """
    said = [c for c in candidates if c.session in sessions and c.kind is not Kind.SIDE]
    reply = incoming.last_reply
    found = None if reply is None else latest(c for c in said if c.reply == reply[1])
    return None if found is None or reply is None else Followed(candidate=found, after=reply[0] + 1)


def continued_sessions(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> set[str]:
    """Sessions that a request is known to continue: it names a call of theirs, quotes a summary, or begins as
    they do and has a later reply; or may continue: it begins as they do, and calls under ids of its own."""
    prefix = _by_prefix(incoming, candidates)
    evidence = _continued(_by_call(incoming, candidates), quoted(incoming, candidates))
    return evidence | _of_prefix(incoming, prefix) | _renaming(incoming, candidates)


def _renaming(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> set[str]:
    """The sessions of the prompts behind which the request calls under ids that are not ours."""
    return {
        c.session
        for c in candidates
        if 0 < c.depth < incoming.depth
        and incoming.starts_with(c.prompt_hash, c.depth)
        and calls_under_other_ids(incoming, c.depth)
    }


def _of_prefix(incoming: IncomingRequest, prefix: Sequence[Followed]) -> set[str]:
    """The session that the request begins with, if replies follow that are not in that beginning."""
    reply = incoming.last_reply
    later = {one.candidate.session for one in prefix if reply is not None and reply[0] >= one.after}
    return later if len(later) == 1 else set()


def _continued(*evidence: Followed | Quoted | None) -> set[str]:
    return {one.candidate.session for one in evidence if one is not None}


def with_replies(candidates: Sequence[Candidate], replies: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with the replies that were looked up, and further candidates from `replies`."""
    spoken = {candidate.turn: candidate for candidate in replies}
    known = {candidate.turn for candidate in candidates}
    merged = [
        replace(c, reply=spoken[c.turn].reply, said=spoken[c.turn].said) if c.turn in spoken else c
        for c in candidates
    ]
    return merged + [candidate for candidate in replies if candidate.turn not in known]


def repeated(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> Candidate | None:
    """The newest turn with the same prompt, which was asked for in the same way.

    A title may be asked for by the first message alone, under another system text.
    """
    return latest(
        c
        for c in candidates
        if c.depth == incoming.depth > 0
        and c.prompt_hash == incoming.prompt_hash
        and (c.shape is None or alike(c.shape, incoming.shape))
    )


def quoted(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> Quoted | None:
    """The newest side turn whose reply, a summary, is part of a message."""
    side = (c for c in candidates if c.kind is Kind.SIDE and len(c.reply or "") >= LONG_REPLY)
    for candidate in sorted(side, key=_age, reverse=True):
        for index, text in enumerate(incoming.texts):
            if (candidate.reply or "") in text:
                return Quoted(candidate=candidate, message=index)
    return None


def words_behind(incoming: IncomingRequest, summary: Quoted) -> tuple[Message, ...]:
    """What a person says in the message that quotes a summary, in parts of its own behind it.

    A client whose dialect has no two messages of the user in a row puts both into one.
    """
    message, quote = incoming.messages[summary.message], summary.candidate.reply or ""
    content = message.content or ""
    for start in message.breaks:
        if quote in plain_text(replace(message, content=content[:start])):
            return (replace(message, content=content[start:], breaks=()),)
    return ()


def rejected(
    incoming: IncomingRequest, candidates: Sequence[Candidate], parent: Followed | None
) -> Candidate | None:
    """The turn whose prompt the request continues without its response; None if that is uncertain.

    One message follows the prompt: the complaint. If it is an assistant's, the response was edited, not
    rejected. If there are more, or it hands a conversation over, a compaction left the replies out. A reply
    that says nothing is not rejected by its absence, nor is one that a later turn of the same prompt replaced
    by nothing.
    """
    start = 0 if parent is None else parent.after
    leaves = [
        c
        for c in candidates
        if 0 < c.depth == incoming.depth - 1
        and c.delivered
        and not c.silent
        and (parent is None or parent.candidate.depth < c.depth or _age(parent.candidate) < _age(c))
        and not c.children
        and c.kind is not Kind.SIDE
        and incoming.starts_with(c.prompt_hash, c.depth)
        and incoming.message_after(c.depth) >= start
        and (parent is None or c.turn != parent.candidate.turn)
    ]
    if len({c.session for c in leaves}) != 1:
        return None
    onward = incoming.segments[-1].message
    edited = incoming.messages[onward].role == "assistant"
    return None if edited or is_handoff(incoming.texts[onward]) else latest(leaves)


def usual_shapes(candidates: Sequence[Candidate], session: str) -> set[Shape]:
    """How the requests of a session's conversation were made, as far as they are among the candidates."""
    main = (c for c in candidates if c.session == session and c.kind is not Kind.SIDE)
    return {c.shape for c in main if c.shape is not None}


def newest_of_client_session(candidates: Sequence[Candidate]) -> str | None:
    """The session of the newest main-line turn under the client's own session id."""
    newest = latest(c for c in candidates if c.newest)
    return None if newest is None else newest.session


def latest(candidates: Iterable[Candidate]) -> Candidate | None:
    return max(candidates, key=_age, default=None)


def _age(candidate: Candidate) -> tuple[float, str]:
    return candidate.created, candidate.turn


Said = Sequence[tuple[str, ...]]
"""The segments of a response, by their parts."""


def calls_under_other_ids(incoming: IncomingRequest, depth: int) -> bool:
    """Whether a reply follows the first `depth` segments that calls, under ids that are not ours."""
    for segment in incoming.segments[depth:]:
        if segment.parts[0] == CALL:
            return turn_of_call(segment.parts[1]) is None
        if segment.parts[0] != "assistant":
            return False
    return False


def renamed(incoming: IncomingRequest, depth: int, said: Said) -> bool:
    """Whether the response `said` follows the first `depth` segments, its calls under ids not ours."""
    if not calls_under_other_ids(incoming, depth):
        return False
    return list(map(_without_id, _calls_behind(incoming, depth, said))) == list(map(_without_id, said))


def with_our_ids(
    results: tuple[Message, ...], incoming: IncomingRequest, *, turn: str, depth: int, said: Said
) -> tuple[Message, ...]:
    """The `results` of the calls of a `turn`, under the ids that we gave them."""
    if not renamed(incoming, depth, said):
        return results
    theirs = (parts[1] for parts in _calls_behind(incoming, depth, said) if parts[0] == CALL)
    ours = {identifier: call_id(turn, at) for at, identifier in enumerate(theirs)}
    return tuple(
        replace(one, tool_call_id=ours.get(plain_id(one.tool_call_id or ""), one.tool_call_id))
        for one in results
    )


def _calls_behind(incoming: IncomingRequest, depth: int, said: Said) -> list[tuple[str, ...]]:
    return [segment.parts for segment in incoming.segments[depth : depth + len(said)]]


def _without_id(parts: tuple[str, ...]) -> tuple[str, ...]:
    return (CALL, *parts[2:]) if parts[0] == CALL else parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A stored turn among its siblings. Superseded turns and those whose client left are left out."""

    turn: str
    kind: Kind
    children: int
    """Turns whose parent it is, side turns not counted. Only whether there are any matters."""
    answered: bool
    """Its next state is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a new child changes."""

    kind: Kind
    """The new turn's."""
    answers: bool
    """Whether the messages that it adds are its parent's next state."""
    changes: tuple[tuple[str, Kind], ...] = ()
    """Earlier turns whose kind changes."""
    confirmed: str | None = None
    """The parent, if this child first shows that it is on the main line. The messages that the parent's own
    prompt added (`request.added_messages`) are then the next state of the parent's parent."""


def resolve(kind: Kind, *, parent: Branch | None, siblings: Sequence[Branch]) -> Resolution:
    """Decide for a turn that is bound to `parent`, which has the children `siblings` already.

    `kind` is the binding's. `siblings` holds neither the turn itself nor what it retries or rejects.
    """
    main_siblings = [sibling for sibling in siblings if sibling.kind is not Kind.SIDE]
    if kind is not Kind.MAIN or parent is None:
        return Resolution(kind=kind, answers=parent is not None and not main_siblings)
    confirmed = parent.turn if parent.kind is Kind.UNKNOWN else None
    promoted = () if confirmed is None else ((confirmed, Kind.MAIN),)
    rivals = [sibling for sibling in main_siblings if sibling.children or not sibling.answered]
    if not rivals:
        return Resolution(kind=Kind.MAIN, answers=True, changes=promoted, confirmed=confirmed)
    doubted = tuple(
        (rival.turn, Kind.UNKNOWN) for rival in rivals if rival.kind is Kind.MAIN and not rival.children
    )
    return Resolution(kind=Kind.UNKNOWN, answers=False, changes=promoted + doubted, confirmed=confirmed)
