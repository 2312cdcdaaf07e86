"""Binding: the session of a request, the turn that it follows, and that turn's next state.

The next state is what people, tools or the client's system messages say after the turn's response.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from afterwit.binding.client_text import is_boilerplate
from afterwit.binding.evidence import (
    LONG_REPLY,
    Candidate,
    Recent,
    Relation,
    after_call,
    latest,
    paraphrased,
    relation_of,
    renamed,
)
from afterwit.binding.request import (
    CALL,
    IncomingRequest,
    Shape,
    first_index,
    last_reply,
    plain_text,
    read_message,
    segments_of,
)
from afterwit.binding.side_turns import auxiliary_session, classify, looks_back, opens_as_known, unlike
from afterwit.lifecycle import Reason
from afterwit.turn import SYSTEM, Kind, Message, RecordedTurn, call_id, observed, plain_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The place of a request in its session, and the turn that its last messages answer."""

    session: str
    parent: str | None
    kind: Kind
    """MAIN or SIDE by the request alone; `resolve` decides with its siblings."""
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
    """A turn that proves to be on this session's main line: the summary that continues here was requested
    after it, or a person continues after it although it seemed to be apart from another session."""


def bind(
    incoming: IncomingRequest, candidates: Sequence[Candidate], recent: Sequence[Recent] = ()
) -> Binding:
    """Bind a request.

    `candidates` are the stored turns of its scope that its `hashes` and `named` turns lead to. `recent` are
    the newest conversations of its scope, which a request without a parent may contain or continue.
    """
    others = [candidate for candidate in candidates if candidate.turn != incoming.turn]
    relation = relation_of(incoming, others, recent)
    relative, session = relation.relative, relation.session
    about = _about(incoming, recent, relation)
    usual = _usual_shapes(relative, others)
    kind = classify(
        incoming,
        usual=usual,
        parent=None if relative is None else relative.kind,
        about_another=about is not None or looks_back(incoming),
        resumes=_resumes(incoming, relation, usual, recent),
        repeats=any(one.prompt_hash == incoming.prompt_hash for one in others),
    )
    answers, confirms = relation.answers, relation.confirms if kind is Kind.MAIN else None
    if relative is not None and relative.kind is Kind.SIDE and kind is Kind.MAIN:
        if _is_persons(incoming, relation, relative, usual, others):
            confirms = relative.turn
            session = session if relative.parent else relative.turn
        else:
            answers = None
    answering: tuple[Message, ...] = ()
    if answers is not None:
        answering = reaction(relation.rest, 0, kind)
        answering += reaction(incoming.messages, relation.after, kind, answers)
        if relative is not None and answers == relative.turn:
            answering = with_our_ids(answering, incoming, relative)
    if relation.begins and session is None and kind is Kind.SIDE:
        newest = latest(one for one in others if one.newest)
        session = about or (None if newest is None else newest.session)
    return Binding(
        session=incoming.turn if session is None else session,
        parent=relation.parent,
        kind=kind,
        retry_of=relation.retry_of,
        rejects=relation.rejects,
        answers=answers if answering else None,
        next_state=answering,
        reason=relation.reason,
        confirms=confirms,
    )


def _usual_shapes(relative: Candidate | None, others: Sequence[Candidate]) -> set[Shape]:
    """The known signatures of a relative's session. A session that begins separately has others."""
    if relative is None or (relative.kind is Kind.SIDE and relative.parent is None):
        return set()
    main = (one for one in others if one.session == relative.session and one.kind is not Kind.SIDE)
    return {one.shape for one in main if one.shape is not None}


def _is_persons(
    incoming: IncomingRequest,
    relation: Relation,
    relative: Candidate,
    usual: Collection[Shape],
    others: Sequence[Candidate],
) -> bool:
    """Whether a side turn that a person continues is a person's as well: no one replies to a title or a
    summary. Those of known clients never are. Within a session only its signature spoke against it."""
    if relative.turn != relation.parent or incoming.client.turn_type:
        return False
    if relative.parent is None:
        return not opens_as_known(incoming, incoming.message_after(relative.depth))
    follows_main = any(one.turn == relative.parent and one.kind is not Kind.SIDE for one in others)
    if not follows_main or not incoming.starts_with(relative.full_hash, relative.full_depth):
        return False
    end = incoming.message_after(relative.depth)
    unusual = relative.shape is not None and unlike(relative.shape, usual)
    return unusual and not (opens_as_known(incoming, end) or looks_back(incoming, end))


def _about(incoming: IncomingRequest, recent: Sequence[Recent], relation: Relation) -> str | None:
    """The session that a request without a parent is about, "" if there are several; None: about none.

    One that continues a session may contain the messages since its last summary, under other instructions.
    """
    shape = None if relation.relative is None else relation.relative.shape
    same_system = shape is None or shape.system == incoming.shape.system
    if not relation.begins or (relation.session is not None and same_system):
        return None
    sessions = paraphrased(incoming, [one for one in recent if not _goes_on_as(incoming.shape, one.shape)])
    if sessions:
        return sessions.pop() if len(sessions) == 1 else ""
    return auxiliary_session(incoming, recent) if relation.session is None else None


def _goes_on_as(shape: Shape, known: Shape | None) -> bool:
    """Whether a request lets an agent with its own instructions and tools go on, and is not about its
    conversation: another model may have written the summary."""
    return (
        known is not None and bool(shape.tools) and (shape.tools, shape.system) == (known.tools, known.system)
    )


def _resumes(
    incoming: IncomingRequest, relation: Relation, usual: Collection[Shape], recent: Sequence[Recent]
) -> bool:
    """Whether a person continues after a side turn, with its tools or the session's: the client keeps it in
    the history, or it was none."""
    shape, own = None if relation.relative is None else relation.relative.shape, incoming.shape
    if shape is None or (shape.tools != own.tools and (not usual or unlike(own, usual))):
        return False
    said = [message.role for message in incoming.messages[incoming.open :]]
    return "user" in said and "tool" not in said and not paraphrased(incoming, recent, relation.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The changes that a new child makes."""

    kind: Kind
    answers: bool
    """Whether the messages that it adds are its parent's next state."""
    changes: tuple[tuple[str, Kind], ...] = ()
    """Earlier turns whose kind changes."""
    confirmed: str | None = None
    """The parent, if this child first proves that it is on the main line. The messages that the parent's own
    prompt added (`next_state.added_messages`) are then the next state of the parent's parent."""


def resolve(kind: Kind, *, parent: Candidate | None, siblings: Sequence[Candidate]) -> Resolution:
    """Decide for a turn that is bound to `parent`, which has the children `siblings` already.

    `kind` is the binding's. `siblings` holds neither the turn itself nor what it retries or rejects.
    """
    main = [sibling for sibling in siblings if sibling.kind is not Kind.SIDE]
    if kind is not Kind.MAIN or parent is None:
        return Resolution(kind=kind, answers=parent is not None and not main)
    confirmed = parent.turn if parent.kind is Kind.UNKNOWN else None
    promoted = () if confirmed is None else ((confirmed, Kind.MAIN),)
    rivals = [sibling for sibling in main if sibling.children or not sibling.answered]
    if not rivals:
        return Resolution(kind=Kind.MAIN, answers=True, changes=promoted, confirmed=confirmed)
    doubted = tuple(
        (rival.turn, Kind.UNKNOWN) for rival in rivals if rival.kind is Kind.MAIN and not rival.children
    )
    return Resolution(kind=Kind.UNKNOWN, answers=False, changes=promoted + doubted, confirmed=confirmed)


def reaction(
    messages: Sequence[Message], after: int, kind: Kind, turn: str | None = None
) -> tuple[Message, ...]:
    """The messages from index `after` to the assistant's next one. Further calls of the `turn` do not end
    them: some clients send each call with its result.

    Messages that hold only the client's text are left out, and the system's if anyone else spoke. A side turn
    keeps only its tool results: its other messages were written to obtain a title or a summary.
    """
    roles = ("tool",) if kind is Kind.SIDE else ("user", "tool")
    kept: list[Message] = []
    system: list[Message] = []
    for index in range(after, len(messages)):
        message = messages[index]
        if message.role == "assistant":
            before = messages[index - 1].content if index > after else None
            said, empty = message.content or "", not message.tool_calls and not plain_text(message)
            # a placeholder, of a reply without visible text, ends it only after a reply with text
            placeholder = empty and not is_boilerplate(said, "")
            own = message.tool_calls or not (is_boilerplate(said, before or "") or placeholder)
            if (own or (kept and placeholder)) and turn not in read_message(message).turns:
                break
        elif message.role in roles and (message.role == "tool" or plain_text(message)):
            kept.append(message)
        elif message.role in SYSTEM and plain_text(message):
            system.append(message)
    return tuple(kept) if kept or kind is Kind.SIDE else observed(system)


def added_messages(messages: Sequence[Message], parent: RecordedTurn, depth: int) -> tuple[Message, ...]:
    """The next state of `parent` in the prompt of its child.

    It begins after the parent's call or reply, or after the `depth` segments of its prompt and response.
    """
    read = list(map(read_message, messages))
    written, mentions = (first_index(turns) for turns in ([r.written for r in read], [r.turns for r in read]))
    called = {**written, **mentions}.get(parent.id)
    if called is not None:
        return reaction(messages, after_call(messages, called), Kind.MAIN, parent.id)
    reply, last = plain_text(parent.message), last_reply(messages)
    if reply and last is not None and read[last].text == reply:
        return reaction(messages, last + 1, Kind.MAIN)
    segments = segments_of(read)
    if not 0 < depth <= len(segments):
        return ()
    return reaction(messages, segments[depth - 1].message + 1, Kind.MAIN)


def with_our_ids(
    results: tuple[Message, ...], incoming: IncomingRequest, turn: Candidate
) -> tuple[Message, ...]:
    """The `results` of the turn's calls, under the ids that we gave them."""
    if not renamed(incoming, turn):
        return results
    found = (one.parts for one in incoming.segments[turn.depth :][: len(turn.said)])
    theirs = (parts[1] for parts in found if parts[0] == CALL)
    ours = {identifier: call_id(turn.turn, at) for at, identifier in enumerate(theirs)}
    return tuple(
        replace(one, tool_call_id=ours.get(plain_id(one.tool_call_id or ""), one.tool_call_id))
        for one in results
    )


def with_assistant_summaries(messages: Sequence[Message], replies: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, with the assistant as the author of user messages that quote one of the `replies`.

    `replies` are those of the session's side turns; short ones may be quoted by chance.
    """
    summaries = [text for text in map(plain_text, replies) if len(text) >= LONG_REPLY]

    def quotes(message: Message) -> bool:
        if not summaries or message.role != "user" or len(message.content or "") < LONG_REPLY:
            return False
        text = plain_text(message)
        return any(summary in text for summary in summaries)

    return tuple(replace(one, role="assistant") if quotes(one) else one for one in messages)
