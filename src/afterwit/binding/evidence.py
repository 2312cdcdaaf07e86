"""How a request relates to the stored turns: which ones it follows, repeats, rejects or quotes.

A stored turn leaves two fingerprints: of its prompt, and of its prompt with its response. A request with the
second as a prefix follows the turn; one with only the first rejected its response. Without a parent, a
request may still be about a recent conversation, or continue one whose history the client rewrote.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

from afterwit.binding.client_text import is_handoff
from afterwit.binding.request import CALL, DISTINCTIVE, IncomingRequest, Shape, plain_text
from afterwit.lifecycle import Reason
from afterwit.turn import SYSTEM, Kind, Message, turn_of_call

OBSERVED = "\nObservation:"
"""Agents that write calls as text append this and the tool's output to the reply."""

LONG_REPLY = 80
"""A quoted side reply of at least this many characters is not a coincidence: titles are shorter."""

SHORTEST_TEXT = 16
"""Characters. Shorter texts are in many messages and are not compared."""

LONGEST_TEXT = 200
"""Characters. Only the beginning of a text is compared, because clients cut long tool results."""

LONGEST_NAME = 32
"""Characters of a name, such as that of a character, that a model writes before its reply."""

_NO_LETTERS = re.compile(r"[\W_]+")

_SENTENCE_END = re.compile(r"[.!?\u2026](?!\w)|[\u3002\uff01\uff1f]")

FEWEST_TEXTS = 2
"""Least number of a conversation's texts in a paraphrase."""

LEAST_SHARE = 0.5
"""Least share of a conversation's texts in a paraphrase."""


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
    """Turns whose parent it is, without side turns. Only whether there are any matters."""
    answered: bool = False
    """Messages that follow it are known; among siblings, feedback on it counts too."""
    reply: str | None = None
    """The text of its reply as it is compared; None if it was not looked up."""
    said: tuple[tuple[str, ...], ...] = ()
    """The segments of the reply, by their parts, if it was looked up."""
    shape: Shape | None = None
    """The signature of its request; None if it was not stored."""
    newest: bool = False
    """Whether it is the newest main-line turn under the session id that the client sends."""

    @property
    def is_empty(self) -> bool:
        """Whether the reply has neither visible text nor a call."""
        return self.full_depth == self.depth

    @property
    def calls(self) -> bool:
        """Whether the reply calls tools, if it was looked up."""
        return any(parts[0] == CALL for parts in self.said)

    @property
    def arrived(self) -> bool:
        """Whether the client has the answer: it was delivered, or the conversation continues from it."""
        return self.delivered or self.children > 0

    @property
    def age(self) -> tuple[float, str]:
        return self.created, self.turn


def latest(candidates: Iterable[Candidate]) -> Candidate | None:
    return max(candidates, key=lambda one: one.age, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """A conversation of the same scope, as of its newest turn."""

    session: str
    turn: str
    texts: tuple[str, ...]
    """Its last messages as they are compared (`request.plain_text`), without the system's."""
    asked: tuple[str, ...] = ()
    """The user messages, oldest first, each cut to `LONGEST_TEXT`, without empty ones."""
    shape: Shape | None = None
    begins: bool = False
    """Whether its newest turn follows no other."""
    client_session: bytes | None = None
    """Hash of the client's session id; None if it sent none."""
    pieces: frozenset[str] = field(init=False, repr=False, compare=False)
    """The beginnings of its texts, which a paraphrase contains."""

    def __post_init__(self) -> None:
        pieces = frozenset(text[:LONGEST_TEXT] for text in self.texts if len(text) >= SHORTEST_TEXT)
        object.__setattr__(self, "pieces", pieces)


class Followed(NamedTuple):
    """A turn whose response the request holds or quotes, and the index of the first message after it."""

    candidate: Candidate
    after: int
    rest: tuple[Message, ...] = ()
    """The part of the message before that already answers: some dialects join two user messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """The relation to a stored turn. Without one, a request begins a session or continues `session`."""

    session: str | None = None
    parent: str | None = None
    relative: Candidate | None = None
    """The turn whose session shows the usual signature of requests."""
    answers: str | None = None
    after: int = 0
    """Index of the first message that answers."""
    rest: tuple[Message, ...] = ()
    """The part of an earlier message that already answers."""
    retry_of: str | None = None
    rejects: str | None = None
    reason: Reason | None = None
    confirms: str | None = None

    @property
    def begins(self) -> bool:
        """Whether the request begins a conversation, or a new segment of one."""
        return not (self.parent or self.retry_of or self.rejects or self.reason)


def relation_of(
    incoming: IncomingRequest, candidates: Sequence[Candidate], recent: Sequence[Recent]
) -> Relation:
    """The first that applies: retry, ambiguous, regeneration, compaction, rejection, following, none."""
    parents, summary = _parents(incoming, candidates, recent)
    parent, following = parents[0] if len(parents) == 1 else None, Relation()
    if parent is not None:
        turn = parent.candidate
        following = Relation(
            session=turn.session,
            parent=turn.turn,
            relative=turn,
            answers=turn.turn,
            after=parent.after,
            rest=parent.rest,
        )
    same = latest(each for each in candidates if _has_same_prompt(incoming, each))
    if same is not None and following.parent == same.turn:
        return following
    if same is not None and (not same.arrived or (same.parent is not None and len(parents) < 2)):
        return replace(
            following,
            session=same.session,
            parent=same.parent,
            answers=same.parent if following.parent == same.parent else None,
            retry_of=None if same.arrived else same.turn,
        )
    if len(parents) > 1:
        return Relation(reason=Reason.AMBIGUOUS_PARENT)
    if summary is not None and (parent is None or summary.after > parent.after):
        asked_after = summary.candidate.parent
        relation = _continuing(summary.candidate.session, candidates, summary.after, summary.rest)
        last = relation.relative
        doubted = last is not None and last.kind is Kind.UNKNOWN and last.turn == asked_after
        return replace(relation, confirms=asked_after) if doubted else relation
    rejected = _rejected(incoming, candidates, parent) if same is None else None
    if rejected is not None:
        return Relation(
            session=rejected.session,
            parent=rejected.parent,
            relative=rejected,
            answers=None if rejected.answered or not rejected.delivered else rejected.turn,
            after=incoming.message_after(rejected.depth),
            rejects=rejected.turn,
        )
    if parent is None and (session := _kept_words(incoming, recent)) is not None:
        return _continuing(session, candidates, len(incoming.messages))
    return following


def _parents(
    incoming: IncomingRequest, candidates: Sequence[Candidate], recent: Sequence[Recent]
) -> tuple[list[Followed], Followed | None]:
    """The turn that a request follows, several if that is ambiguous, and the summary that it quotes.

    The deepest match is the parent. A tool-call id of ours, or a reply of a session that is known to continue
    here, wins over a prefix that ends before it: then the client rewrote the messages between.
    """
    prefix, called, summary, sessions = _direct(incoming, candidates)
    sessions |= resumed(incoming, recent)
    deepest = [] if called is None else [called]
    if incoming.last_reply is not None:  # a compaction drops prompts, but keeps the last replies
        index, reply = incoming.last_reply
        said = (each for each in candidates if each.session in sessions and each.kind is not Kind.SIDE)
        if (replied := latest(each for each in said if _ends(reply, each.reply))) is not None:
            found = [*deepest, Followed(replied, index + 1)]
            deepest = [max(found, key=lambda one: (one.after, one.candidate.turn not in incoming.written))]
    rewritten = deepest and all(deepest[0].after > one.after for one in prefix)
    return deepest if rewritten else prefix, summary


def _has_same_prompt(incoming: IncomingRequest, candidate: Candidate) -> bool:
    shape, own = candidate.shape, incoming.shape
    equal = candidate.depth == incoming.depth > 0 and candidate.prompt_hash == incoming.prompt_hash
    return equal and (shape is None or (shape.tools, shape.system) == (own.tools, own.system))


def _continuing(
    session: str, candidates: Sequence[Candidate], after: int, rest: tuple[Message, ...] = ()
) -> Relation:
    """A new segment of a session. Its messages answer the session's last reply, if nothing did."""
    main = latest(each for each in candidates if each.session == session and each.kind is not Kind.SIDE)
    waits = main is not None and not (main.answered or main.calls or main.children)
    answers = main.turn if main is not None and waits else None
    return Relation(session=session, relative=main, answers=answers, after=after, rest=rest)


def continued_sessions(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> set[str]:
    """The sessions that a request continues, or may continue: binding needs their replies.

    It names one of their calls, quotes a summary, begins as they do and has a later reply, or begins as they
    do and calls under ids of its own, appends a tool's words to the reply, or has another reply or one more
    message there.
    """
    *_, sessions = _direct(incoming, candidates)
    return sessions | {
        each.session
        for each in candidates
        if _has_prompt(incoming, each)
        and (
            _calls_under_other_ids(incoming, each.depth)
            or _observed(incoming, each.depth) is not None
            or _replied_otherwise(incoming, each)
            or each.depth == incoming.depth - 1
        )
    }


def with_replies(candidates: Sequence[Candidate], replies: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with the replies that were looked up, and further candidates from `replies`."""
    looked_up = {one.turn: one for one in replies}
    merged = [
        replace(each, reply=one.reply, said=one.said) if (one := looked_up.pop(each.turn, None)) else each
        for each in candidates
    ]
    return merged + list(looked_up.values())


def _direct(
    incoming: IncomingRequest, candidates: Sequence[Candidate]
) -> tuple[list[Followed], Followed | None, Followed | None, set[str]]:
    """The turns that the request follows by prefix, by call, by summary, and the sessions that it continues.

    The longest prefix counts: one turn, unless it is ambiguous; the client may name one of several. A session
    continues after its prefix if more replies follow.
    """
    found = [one for candidate in candidates if (one := _followed(incoming, candidate)) is not None]
    deepest = max((one.candidate.full_depth for one in found), default=0)
    prefix = [one for one in found if one.candidate.full_depth == deepest]
    named = [one for one in prefix if one.candidate.turn == incoming.follows]
    prefix = named or [one for one in prefix if one.candidate.delivered] or prefix
    families = {(one.candidate.session, one.candidate.parent or one.candidate.turn) for one in prefix}
    if len(families) == 1:
        prefix = [max(prefix, key=lambda one: one.candidate.age)]
    called, summary, reply = (
        _by_call(incoming, candidates),
        _quoted(incoming, candidates),
        incoming.last_reply,
    )
    later = {one.candidate.session for one in prefix if reply is not None and reply[0] >= one.after}
    sessions = {one.candidate.session for one in (called, summary) if one is not None}
    return prefix, called, summary, sessions | (later if len(later) == 1 else set())


def _followed(incoming: IncomingRequest, candidate: Candidate) -> Followed | None:
    """The turn as a parent, if its prompt and response begin the request."""
    if not candidate.is_empty:
        full = incoming.starts_with(candidate.full_hash, candidate.full_depth)
        if full or (_has_prompt(incoming, candidate) and renamed(incoming, candidate)):
            return Followed(candidate, incoming.message_after(candidate.full_depth))
        reply = (candidate.reply or "").partition(OBSERVED.strip())[0].strip()  # the model may make it up
        observed = _observed(incoming, candidate.depth) if _has_prompt(incoming, candidate) else None
        if observed is not None and observed[0] == reply != "":
            return Followed(candidate, incoming.segments[candidate.depth].message + 1, (observed[1],))
        return _retouched(incoming, candidate)
    if incoming.starts_with(candidate.full_hash, candidate.depth):
        goes_on = candidate.depth and _goes_on_after_empty(incoming, candidate.depth)
        return Followed(candidate, incoming.message_after(candidate.depth)) if goes_on else None
    heads = (head for head in incoming.heads if head.fingerprint == candidate.full_hash)
    return next((Followed(candidate, head.message + 1, (head.rest,)) for head in heads), None)


def _goes_on_after_empty(incoming: IncomingRequest, depth: int) -> bool:
    """Whether a client continues after an empty reply to the first `depth` segments.

    It may have left the reply out. If only system messages follow, an empty message must replace it.
    """
    following = incoming.segments[depth:]
    if following:
        return following[0].parts[0] == "user"
    after = incoming.message_after(depth)
    said = list(zip(incoming.messages, incoming.texts, strict=True))[after:]
    replies = [at for at, (message, _) in enumerate(said) if message.role == "assistant"]
    spoken = [at for at, (message, text) in enumerate(said) if message.role in SYSTEM and text]
    return bool(replies) and bool(spoken) and replies[0] < spoken[-1]


def _has_prompt(incoming: IncomingRequest, candidate: Candidate) -> bool:
    """Whether the request is a turn's prompt and more."""
    within = 0 < candidate.depth < incoming.depth
    return within and incoming.starts_with(candidate.prompt_hash, candidate.depth)


def _observed(incoming: IncomingRequest, depth: int) -> tuple[str, Message] | None:
    """The reply after the first `depth` segments, as it is compared, and a tool's output, if the client
    appended it to the reply."""
    message = incoming.messages[incoming.segments[depth].message]
    said, mark, seen = (message.content or "").partition(OBSERVED)
    if not mark or message.role == "tool":
        return None
    return plain_text(replace(message, content=said)), Message(role="tool", content=seen.strip())


def _replied_otherwise(incoming: IncomingRequest, candidate: Candidate) -> bool:
    """Whether another text than the turn's response follows its prompt as the assistant's."""
    after = incoming.segments[candidate.depth].parts[0]
    return after == "assistant" and not incoming.starts_with(candidate.full_hash, candidate.full_depth)


def _retouched(incoming: IncomingRequest, candidate: Candidate) -> Followed | None:
    """The turn as a parent, if its client changed only the form of its reply.

    Role-play clients complete its asterisks and quotation marks, and cut the name before it and the sentence
    at its end that the limit left unfinished.
    """
    reply = candidate.reply if candidate.delivered and not candidate.calls else None
    if not reply or not _has_prompt(incoming, candidate) or not _replied_otherwise(incoming, candidate):
        return None
    segment = incoming.segments[candidate.depth]
    name, _, rest = reply.partition(":")
    spoken = rest if len(name) <= LONGEST_NAME else reply
    same = _has_letters_of(segment.parts[1], reply) or _has_letters_of(segment.parts[1], spoken)
    return Followed(candidate, segment.message + 1) if same else None


def _has_letters_of(text: str, reply: str) -> bool:
    """Whether a text has the letters of a reply, at least those of most of it and all finished sentences."""
    ends = [found.end() for found in _SENTENCE_END.finditer(reply)]
    kept, whole, finished = map(_letters, (text, reply, reply[: max(ends, default=0)]))
    return whole.startswith(kept) and len(kept) >= len(finished) and 2 * len(kept) > len(whole)


def _letters(text: str) -> str:
    """The letters and digits alone, composed."""
    return _NO_LETTERS.sub("", unicodedata.normalize("NFC", text))


def _calls_under_other_ids(incoming: IncomingRequest, depth: int) -> bool:
    """Whether a reply follows the first `depth` segments that calls under ids that are not ours."""
    for segment in incoming.segments[depth:]:
        if segment.parts[0] == CALL:
            return turn_of_call(segment.parts[1]) is None
        if segment.parts[0] != "assistant":
            return False
    return False


def renamed(incoming: IncomingRequest, candidate: Candidate) -> bool:
    """Whether the turn's response, if it is known, follows its prompt with its calls under other ids."""
    if not candidate.said or not _calls_under_other_ids(incoming, candidate.depth):
        return False

    def without_id(parts: tuple[str, ...]) -> tuple[str, ...]:
        return (CALL, *parts[2:]) if parts[0] == CALL else parts

    found = [one.parts for one in incoming.segments[candidate.depth :][: len(candidate.said)]]
    return list(map(without_id, found)) == list(map(without_id, candidate.said))


def _by_call(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> Followed | None:
    """The turn whose tool call is the last that the request names.

    An id in a reply's text counts only if the message follows the turn's prompt, as its reply does.
    """
    known = {candidate.turn: candidate for candidate in candidates}
    found = [(index, known[turn]) for turn, index in incoming.mentions.items() if turn in known]
    for turn, index in incoming.written.items():
        named = known.get(turn)
        if named is None or not _has_prompt(incoming, named):
            continue
        if incoming.segments[named.depth].message == index:
            found.append((index, named))
    if not found:
        return None
    index, candidate = max(found, key=lambda pair: pair[0])
    return Followed(candidate, after_call(incoming.messages, index))


def after_call(messages: Sequence[Message], index: int) -> int:
    """Index after the call, or of its result if the call itself is gone."""
    return index + 1 if messages[index].role == "assistant" else index


def _quoted(incoming: IncomingRequest, candidates: Sequence[Candidate]) -> Followed | None:
    """The newest side turn whose reply, a summary, is part of a message."""
    side = [each for each in candidates if each.kind is Kind.SIDE and len(each.reply or "") >= LONG_REPLY]
    for candidate in sorted(side, key=lambda one: one.age, reverse=True):
        quote = candidate.reply or ""
        for index, text in enumerate(incoming.texts):
            if quote not in text:
                continue
            message, content = incoming.messages[index], incoming.messages[index].content or ""
            for start in message.breaks:
                if quote in plain_text(replace(message, content=content[:start])):
                    rest = replace(message, content=content[start:], breaks=())
                    return Followed(candidate, index + 1, (rest,))
            return Followed(candidate, index + 1)
    return None


def _rejected(
    incoming: IncomingRequest, candidates: Sequence[Candidate], parent: Followed | None
) -> Candidate | None:
    """The turn whose prompt the request continues without its response; None if that is uncertain.

    One message follows the prompt: the complaint. It answers no turn if the response was not delivered. If it
    is the assistant's, the response was edited, not rejected, and if it is the response itself, another agent
    receives it. If there are more messages, or one hands a conversation over, a compaction left the replies
    out. An empty reply is not rejected by its absence, nor is one that a later turn of the same prompt
    replaced by an empty one, nor one to the system's words alone: the request answers the reply before them.
    """
    start = 0 if parent is None else parent.after
    added = incoming.said("user", after=incoming.message_after(max(0, incoming.depth - 1)))
    leaves = [
        each
        for each in candidates
        if each.depth == incoming.depth - 1
        and _has_prompt(incoming, each)
        and not each.is_empty
        and not each.children
        and each.kind is not Kind.SIDE
        and incoming.message_after(each.depth) >= start
        and (parent is None or parent.candidate.depth < each.depth or parent.candidate.age < each.age)
        and (parent is None or each.turn != parent.candidate.turn)
        and (parent is None or not _adds_no_words(each, parent.candidate))
        and not _passed_to_another(incoming, added, each.reply, each.shape)
    ]
    if len({each.session for each in leaves}) != 1:
        return None
    complaint = incoming.segments[-1].message
    edited = incoming.messages[complaint].role == "assistant"
    return None if edited or is_handoff(incoming.texts[complaint]) else latest(leaves)


def _passed_to_another(
    incoming: IncomingRequest, said: Iterable[str], reply: str | None, asked: Shape | None
) -> bool:
    """Whether one of the user's messages, `said`, is the `reply` to an earlier request of the shape `asked`.

    Agents that work together get each other's replies as the user's, under their own system texts, some with
    the name of the other agent.
    """
    if not reply:
        return False
    another = asked is not None and asked.system != incoming.shape.system
    named = another and len(reply) >= SHORTEST_TEXT
    return any(text == reply or (named and reply in text) for text in said)


def _adds_no_words(turn: Candidate, parent: Candidate) -> bool:
    """Whether a turn was asked for right after its parent's response, by the system's words at most."""
    return turn.parent == parent.turn and turn.depth == parent.full_depth


def of_the_same_client(incoming: IncomingRequest, recent: Iterable[Recent]) -> list[Recent]:
    """The conversations under the session id that the client sends; all if it sends none."""
    named = incoming.client_session_hash
    return [one for one in recent if named is None or one.client_session == named]


def resumed(incoming: IncomingRequest, recent: Iterable[Recent]) -> set[str]:
    """The session that ended as the request's history ends; empty if there are several.

    It has the same reply and the same texts before it, or the same user messages and no tools. The client
    left out old messages or tool calls, so that no known prompt matches.
    """
    if incoming.last_reply is None:
        return set()
    index, reply = incoming.last_reply
    texts = incoming.said("user", "assistant", "tool", end=index + 1)
    used_tools = any(one.role == "tool" or one.tool_calls for one in incoming.messages[: index + 1])
    asked = [] if used_tools else incoming.said("user", end=index + 1)
    found = {
        one.session
        for one in of_the_same_client(incoming, recent)
        if _same_end(texts, [text for text in one.texts if text]) or _same_questions(asked, reply, one)
    }
    return found if len(found) == 1 else set()


def _same_end(texts: Sequence[str], known: Sequence[str]) -> bool:
    """Whether the last two texts or more are the same, and long enough to exclude chance."""
    pairs = zip(reversed(texts), reversed(known), strict=False)
    common = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return len(common) > 1 and sum(map(len, common)) >= DISTINCTIVE


def _ends(text: str, reply: str | None) -> bool:
    """Whether a message ends with this reply: some clients join the replies, and the results of the calls,
    between two messages of the user, or a cut reply and its continuation."""
    return text == reply or (reply is not None and len(reply) >= SHORTEST_TEXT and text.endswith(reply))


def _same_questions(asked: Sequence[str], reply: str, one: Recent) -> bool:
    """Whether a conversation ended with this reply to the same user messages.

    The last one may have been wrapped: some clients add text to the current message only.
    """
    if not asked or len(asked) != len(one.asked) or not any(_ends(reply, text) for text in one.texts[-1:]):
        return False
    if [text[:LONGEST_TEXT] for text in asked[:-1]] != list(one.asked[:-1]):
        return False
    last = asked[-1]
    known = [text for text in one.texts[:-1] if text.startswith(one.asked[-1])]
    if len(last) < SHORTEST_TEXT:  # as whole words
        known = [text for text in known if re.search(rf"(?<!\w){re.escape(last)}(?!\w)", text)]
    return any(last in text for text in known) and len(reply) + sum(map(len, asked)) >= DISTINCTIVE


def _kept_words(incoming: IncomingRequest, recent: Iterable[Recent]) -> str | None:
    """The session whose user messages the request begins with, without the replies; None if there are
    several.

    One message in common proves nothing: many conversations begin with the same words. Nor do several if the
    reply is among the messages.
    """
    said = incoming.said("user")
    asked = [text[:LONGEST_TEXT] for text in said]
    if incoming.last_reply is not None or len(asked) <= FEWEST_TEXTS:
        return None
    found = {
        one.session
        for one in of_the_same_client(incoming, recent)
        if 1 < len(one.asked) < len(asked)
        and sum(map(len, one.asked)) >= DISTINCTIVE
        and asked[: len(one.asked)] == list(one.asked)
        and not _passed_to_another(
            incoming, said[len(one.asked) :], next(reversed(one.texts), None), one.shape
        )
    }
    return found.pop() if len(found) == 1 else None


def paraphrased(incoming: IncomingRequest, recent: Sequence[Recent], after: int = 0) -> set[str]:
    """The session that a user message, from index `after` on, contains; several if it has as much of each.

    To compact a conversation, clients send it as text in one message, under other instructions. The wording
    of the instructions changes, the conversation inside does not. A message that begins as one of the
    conversation's own under the same system text follows the same form: forms may name possible replies.
    """
    carriers = [
        text for text in incoming.said("user", after=after) if len(text) > FEWEST_TEXTS * SHORTEST_TEXT
    ]
    held: dict[str, int] = defaultdict(int)
    for one in of_the_same_client(incoming, recent) if carriers else ():
        fewest = max(FEWEST_TEXTS, LEAST_SHARE * len(one.pieces))
        same_system = one.shape is not None and one.shape.system == incoming.shape.system
        for text in carriers:
            if same_system and text.startswith(tuple(one.pieces)):
                continue
            count = sum(piece in text for piece in one.pieces if len(piece) < len(text))
            if count >= fewest:  # a session that branched is there once for each branch
                held[one.session] = max(held[one.session], count)
    most = max(held.values(), default=0)
    return {session for session, texts in held.items() if texts == most}
