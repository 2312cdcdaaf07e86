"""Binding: which session a request belongs to, which turn it follows, and that turn's next state.

A stored turn leaves two fingerprints: of its prompt, and of its prompt with its own response. A request whose
prefix is the second follows that turn; one whose prefix is only the first rejected its response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from afterwit.binding.client_text import is_boilerplate
from afterwit.binding.errands import errand_of, looks_back
from afterwit.binding.parents import (
    Candidate,
    Followed,
    Quoted,
    followed,
    latest,
    newest_of_client_session,
    quoted,
    rejected,
    repeated,
    usual_shapes,
    with_our_ids,
    words_behind,
)
from afterwit.binding.request import (
    IncomingRequest,
    after_call,
    last_reply,
    mentions,
    read_message,
    written_calls,
)
from afterwit.binding.retelling import Recent, kept_words, resumed, retold
from afterwit.binding.segments import plain_text, segments_of
from afterwit.binding.side_turns import Patterns, classify, known_patterns, matches, open_messages
from afterwit.lifecycle import Reason
from afterwit.message import SYSTEM, Message, observed
from afterwit.turn import Kind, RecordedTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The place of a request in its session, and the turn that its last messages answer."""

    session: str
    parent: str | None
    kind: Kind
    """MAIN or SIDE by the request alone; `siblings.resolve` decides with its siblings."""
    retry_of: str | None = None
    """The turn that this one supersedes: the same prompt, whose answer had not arrived."""
    rejects: str | None = None
    """The turn whose response was taken out: `next_state` is the complaint."""
    answers: str | None = None
    """The turn that `next_state` answers: the rejected one, the last before a compaction, else the parent."""
    next_state: tuple[Message, ...] = ()
    reason: Reason | None = None
    """Why the turn cannot train, if binding finds a reason."""
    confirms: str | None = None
    """A turn that is shown to be on the main line of this session: the summary that goes on from here was
    asked behind it, or a person goes on behind it though it seemed to be beside another session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Relation:
    """How a request relates to a stored turn. Without one it begins a session, or goes on in `session`."""

    session: str | None = None
    parent: str | None = None
    relative: Candidate | None = None
    """The turn whose session shows how requests are usually made."""
    answers: str | None = None
    after: int = 0
    """Index of the first message that answers."""
    behind: tuple[Message, ...] = ()
    """What answers before that: the rest of a message, behind a summary or another message."""
    retry_of: str | None = None
    rejects: str | None = None
    reason: Reason | None = None
    confirms: str | None = None


def bind(
    incoming: IncomingRequest,
    candidates: Sequence[Candidate],
    recent: Sequence[Recent] = (),
    patterns: Patterns | None = None,
) -> Binding:
    """Bind a request.

    `candidates` are the stored turns of its scope that its `hashes` and `named` turns lead to. `recent` are
    the newest conversations of its scope, which a request without a parent may retell or go on from.
    `patterns` are those of known side turns; None: the package's own.
    """
    others = [candidate for candidate in candidates if candidate.turn != incoming.turn]
    relation = _relation(incoming, others, recent)
    begins = not (relation.parent or relation.retry_of or relation.rejects or relation.reason)
    beside = _beside(incoming, recent, relation) if begins else None
    relative = relation.relative
    known = known_patterns() if patterns is None else patterns
    kind = classify(
        incoming.messages,
        incoming.texts,
        said=incoming.client.turn_type,
        shape=incoming.shape,
        usual=() if relative is None or _is_aside(relative) else usual_shapes(others, relative.session),
        parent=None if relative is None else relative.kind,
        retells=beside is not None or looks_back(incoming),
        resumes=_resumes(incoming, relation, recent),
        patterns=known,
    )
    left = relative is not None and relative.kind is Kind.SIDE and kind is Kind.MAIN
    misjudged = relative if left and _was_misjudged(incoming, relation, known) else None
    answers = None if left and misjudged is None else relation.answers
    answering = next_state(incoming, relation.after, kind, relation.behind) if answers is not None else ()
    if relative is not None and answers == relative.turn:
        answering = with_our_ids(
            answering, incoming, turn=relative.turn, depth=relative.depth, said=relative.said
        )
    session = relation.session
    if begins and session is None and kind is Kind.SIDE:
        session = beside or newest_of_client_session(others)
    if misjudged is not None:
        session = misjudged.turn
    return Binding(
        session=incoming.turn if session is None else session,
        parent=relation.parent,
        kind=kind,
        retry_of=relation.retry_of,
        rejects=relation.rejects,
        answers=answers if answering else None,
        next_state=answering,
        reason=relation.reason,
        confirms=misjudged.turn if misjudged else relation.confirms if kind is Kind.MAIN else None,
    )


def _resumes(incoming: IncomingRequest, relation: _Relation, recent: Sequence[Recent]) -> bool:
    """Whether a person goes on behind a side turn: the client keeps it in the history, or it was none."""
    parent = relation.relative
    if parent is None or parent.shape is None or parent.shape.tools != incoming.shape.tools:
        return False
    said = [message.role for message in open_messages(incoming.messages)]
    return "user" in said and "tool" not in said and not retold(incoming, recent, relation.after)


def _is_aside(turn: Candidate) -> bool:
    """Whether a turn is beside its session from its first word on: the session's ways are not its own."""
    return turn.kind is Kind.SIDE and turn.parent is None


def _was_misjudged(incoming: IncomingRequest, relation: _Relation, patterns: Patterns) -> bool:
    """Whether a side turn that a person goes on behind begins a conversation, and no known client sends it.

    No one talks with a title or a summary.
    """
    parent = relation.relative
    if parent is None or not _is_aside(parent) or parent.turn != relation.parent:
        return False
    end = incoming.message_after(parent.depth)
    opened = matches(incoming.messages[:end], incoming.texts[:end], patterns)
    return incoming.client.turn_type is None and opened is None


def _beside(incoming: IncomingRequest, recent: Sequence[Recent], relation: _Relation) -> str | None:
    """The session that a request without a parent is beside, "" if that is not known; None: beside none.

    One that goes on in a session may hold what was said since its last summary, under other instructions.
    """
    relative = relation.relative
    if relation.session is not None and (
        relative is None or relative.shape is None or relative.shape.system == incoming.shape.system
    ):
        return None
    sessions = retold(incoming, recent)
    if sessions:
        return sessions.pop() if len(sessions) == 1 else ""
    return errand_of(incoming, recent) if relation.session is None else None


def _relation(
    incoming: IncomingRequest, candidates: Sequence[Candidate], recent: Sequence[Recent]
) -> _Relation:
    """The first that applies: retry, ambiguous, regeneration, compaction, rejection, following, none."""
    summary = quoted(incoming, candidates)
    parents = followed(incoming, candidates, summary, resumed(incoming, recent))
    parent = parents[0] if len(parents) == 1 else None
    same = repeated(incoming, candidates)
    if parent is not None and same is not None and parent.candidate.turn == same.turn:
        return _following(parent)
    if same is not None and not same.arrived:
        return _again(same, parent, retry_of=same.turn)
    if len(parents) > 1:
        return _Relation(reason=Reason.AMBIGUOUS_PARENT)
    if same is not None and same.parent is not None:
        return _again(same, parent, retry_of=None)
    if summary is not None and (parent is None or summary.message >= parent.after):
        return _going_on(incoming, summary, candidates)
    deleted = rejected(incoming, candidates, parent) if same is None else None
    if deleted is not None:
        return _rejecting(incoming, deleted)
    if parent is not None:
        return _following(parent)
    kept = kept_words(incoming, recent)
    return _Relation() if kept is None else _continuing(kept, candidates, after=len(incoming.messages))


def _continuing(
    session: str, candidates: Sequence[Candidate], *, after: int, behind: tuple[Message, ...] = ()
) -> _Relation:
    """A new segment of a session. What it says behind the summary answers the last reply, if nothing did.

    What the session's earlier turns looked like shows whether this one is beside it.
    """
    main = latest(c for c in candidates if c.session == session and c.kind is not Kind.SIDE)
    waits = main is not None and not (main.answered or main.calls or main.children)
    return _Relation(
        session=session,
        relative=main,
        answers=main.turn if main is not None and waits else None,
        after=after,
        behind=behind,
    )


def _going_on(incoming: IncomingRequest, summary: Quoted, candidates: Sequence[Candidate]) -> _Relation:
    """A new segment behind a summary. The turn that it was asked behind is the last of the main line."""
    behind = words_behind(incoming, summary)
    relation = _continuing(summary.candidate.session, candidates, after=summary.message + 1, behind=behind)
    last = relation.relative
    doubted = last is not None and last.kind is Kind.UNKNOWN and last.turn == summary.candidate.parent
    return replace(relation, confirms=last.turn) if last is not None and doubted else relation


def _again(same: Candidate, parent: Followed | None, *, retry_of: str | None) -> _Relation:
    """The same prompt again: this turn takes the place of the earlier one."""
    follows = parent is not None and parent.candidate.turn == same.parent
    return _Relation(
        session=same.session,
        parent=same.parent,
        relative=None if parent is None else parent.candidate,
        answers=same.parent if follows else None,
        after=parent.after if parent is not None else 0,
        behind=parent.behind if parent is not None else (),
        retry_of=retry_of,
    )


def _rejecting(incoming: IncomingRequest, deleted: Candidate) -> _Relation:
    """A sibling of the turn whose response was deleted. Its messages answer that turn, if none did before."""
    return _Relation(
        session=deleted.session,
        parent=deleted.parent,
        relative=deleted,
        answers=None if deleted.answered else deleted.turn,
        after=incoming.message_after(deleted.depth),
        rejects=deleted.turn,
    )


def _following(parent: Followed) -> _Relation:
    return _Relation(
        session=parent.candidate.session,
        parent=parent.candidate.turn,
        relative=parent.candidate,
        answers=parent.candidate.turn,
        after=parent.after,
        behind=parent.behind,
    )


def next_state(
    incoming: IncomingRequest, after: int, kind: Kind, behind: tuple[Message, ...] = ()
) -> tuple[Message, ...]:
    """The next state: what is `behind` a summary, and the messages from `after` to the assistant's next one.

    Messages that hold only the client's text are left out, the system's if anybody else spoke. A side turn
    keeps only its tool results: its other messages were written to obtain a title or a summary.
    """
    return (*_reaction(behind, 0, kind), *_reaction(incoming.messages, after, kind))


def added_messages(messages: Sequence[Message], parent: RecordedTurn, depth: int) -> tuple[Message, ...]:
    """The next state of `parent` in the prompt of its child.

    It begins after the parent's call or reply, or after the `depth` segments of its prompt and response.
    """
    read = list(map(read_message, messages))
    called = {**written_calls(read), **mentions(read)}.get(parent.id)
    if called is not None:
        return _reaction(messages, after_call(messages, called), Kind.MAIN)
    reply, last = plain_text(parent.message), last_reply(messages)
    if reply and last is not None and plain_text(messages[last]) == reply:
        return _reaction(messages, last + 1, Kind.MAIN)
    segments = segments_of(messages, tuple(plain_text(message) for message in messages))
    if not 0 < depth <= len(segments):
        return ()
    return _reaction(messages, segments[depth - 1].message + 1, Kind.MAIN)


def _reaction(messages: Sequence[Message], after: int, kind: Kind) -> tuple[Message, ...]:
    roles = ("tool",) if kind is Kind.SIDE else ("user", "tool")
    kept: list[Message] = []
    told: list[Message] = []
    for index in range(after, len(messages)):
        message, before = messages[index], messages[index - 1].content if index > after else None
        if _speaks(message, before) or (kept and _is_silent(message)):
            break
        if message.role in roles and (message.role == "tool" or plain_text(message)):
            kept.append(message)
        elif message.role in SYSTEM and plain_text(message):
            told.append(message)
    return tuple(kept) if kept or kind is Kind.SIDE else observed(told)


def _speaks(message: Message, before: str | None) -> bool:
    """Whether the assistant said this, and not the client in its place."""
    if message.role != "assistant":
        return False
    boilerplate = is_boilerplate(message.content or "", before or "")
    return bool(message.tool_calls) or not (boilerplate or _is_silent(message))


def _is_silent(message: Message) -> bool:
    """Whether it stands in the place of a reply without visible text."""
    said = message.content or ""
    silent = not message.tool_calls and not plain_text(message) and not is_boilerplate(said, "")
    return message.role == "assistant" and silent
