"""Prepares a parsed request: its prompt ids within the context, then its session and parent in the store.

A request is bound to what the store holds, and what it shows about earlier turns is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from afterwit.binding.bind import Binding, Resolution, added_messages, bind, resolve
from afterwit.binding.evidence import Candidate, continued_sessions, resumed, with_replies
from afterwit.binding.request import IncomingRequest
from afterwit.binding.side_turns import auxiliary_session, earlier_auxiliaries, may_be_auxiliary
from afterwit.chat_format.families import Convention, Thought
from afterwit.chat_format.parse import ResponseParser
from afterwit.chat_format.render import Renderer
from afterwit.dialects.fields import shown
from afterwit.dialects.request import Field, ModelRequest, ToolChoice
from afterwit.engines.port import Capabilities, Constraint
from afterwit.errors import PromptTooLong, RequestError
from afterwit.judging.hinted_prompts import LESSONS
from afterwit.store import ParentLookup, Store
from afterwit.turn import Conversation, Kind, Sampling, Turn, choice_turn
from afterwit.verdict import untrainable

DOUBTFUL_CHARACTERS = 8
"""Characters per token of the context. Longer texts are first counted in slices; usual text has 3 to 5."""

SLICE = 65_536
"""Characters."""

CERTAINLY_TOO_MANY = 2
"""Times the context: cutting a text into slices adds a few tokens, and never doubles them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A rendered request, for the engine and the record."""

    conversation: Conversation
    """As it was rendered: without tools if none may be called, with the date pinned."""
    ids: tuple[int, ...]
    sampling: Sampling
    """With `max_tokens` cut to what fits the context."""
    convention: Convention
    thought: Thought | None
    """The reasoning that the response begins inside."""
    forced: tuple[int, ...]
    """Ids that the response begins with: the opening of a tool call, or the client's prefill."""
    constraint: Constraint | None
    """Keeps the response to the form that the client asked for."""

    def parser(self) -> ResponseParser:
        """A parser of one response."""
        return ResponseParser(self.convention, thought=self.thought, tools=self.conversation.tools)


def count_tokens(request: ModelRequest, renderer: Renderer, *, context_length: int, now: float) -> int:
    """Tokens of a request's prompt. Raises 400 if the template refuses it, or for much more than fits."""
    _, text = _rendered(request, renderer, context_length, now)
    return len(encode_within(text + renderer.said(request.prefill), renderer, context_length))


def prepare(request: ModelRequest, renderer: Renderer, *, context_length: int, now: float) -> Prompt:
    """Render a request. Raises 400 if the template refuses it or it does not fit."""
    conversation, text = _rendered(request, renderer, context_length, now)
    ids = encode_within(text, renderer, context_length)
    convention = renderer.convention if conversation.tools else renderer.convention.without_calls
    thought = convention.open_thought(text)
    begun, opening, constraint = "", "", None
    if request.prefill:  # reasoning that the prompt left open is closed first
        begun = (thought.closing if thought else convention.content_mark) + renderer.said(request.prefill)
    if request.tool_choice is ToolChoice.REQUIRED:
        opening = convention.forced_opening(request.required_tool, thought)
        if not opening:
            message = "This model's chat template teaches no tool calls that are known here."
            raise RequestError(400, "unsupported_tool_choice", message, param=Field.TOOL_CHOICE)
    elif request.form is not None:
        calls = (call.begin for call in convention.calls)
        constraint = Constraint(
            schema=request.form.schema,
            lenient=not request.form.strict,
            starts_after=convention.content_mark or (thought.end if thought else ""),
            reasoning=tuple((mark.begin, mark.end) for mark in renderer.taught_thoughts),
            call_openings=(*calls, *convention.wrappers, *convention.openings),
        )
    prefill = encode_within(begun, renderer, context_length)
    forced = (*renderer.encode(opening), *prefill)
    return Prompt(
        conversation=conversation,
        ids=ids,
        sampling=_fitted(request.sampling, len(ids), len(prefill), len(forced), context_length),
        convention=convention,
        thought=thought,
        forced=forced,
        constraint=constraint,
    )


def _rendered(
    request: ModelRequest, renderer: Renderer, context_length: int, now: float
) -> tuple[Conversation, str]:
    """The conversation, without its tools if none may be called, and its prompt. Raises 400 for one that
    certainly does not fit, before it is rendered."""
    conversation = request.conversation
    if request.tool_choice is ToolChoice.NONE:
        conversation = replace(conversation, tools=())
    conversation = renderer.dated(conversation, now)
    if conversation.characters > renderer.most_characters(context_length):
        raise _too_long(conversation.characters, renderer, context_length)
    return conversation, renderer.text(conversation)


def encode_within(text: str, renderer: Renderer, context_length: int) -> tuple[int, ...]:
    """The text's ids. Raises 400 for a text that certainly does not fit, before all of it is tokenized.

    Tokenizing a long text takes long, and much longer without word boundaries.
    """
    if len(text) > renderer.most_characters(context_length):
        raise _too_long(len(text), renderer, context_length)
    if len(text) > DOUBTFUL_CHARACTERS * context_length:
        count = 0
        for start in range(0, len(text), SLICE):
            count += len(renderer.encode(text[start : start + SLICE]))
            if count > CERTAINLY_TOO_MANY * context_length:
                tokens = -(-count // CERTAINLY_TOO_MANY)
                raise PromptTooLong(tokens, context_length, param=Field.MESSAGES)
    return renderer.encode(text)


def _fitted(sampling: Sampling, prompt: int, prefill: int, forced: int, context_length: int) -> Sampling:
    """The sampling with `max_tokens` cut to the room left; a prefill counts beyond what the client asked for.
    Raises 400 if there is no room."""
    room, asked = context_length - prompt, sampling.max_tokens + prefill
    if room <= forced:
        raise PromptTooLong(prompt + forced, context_length, param=Field.MESSAGES)
    most = max(min(asked, room), forced + 1)
    if most == asked and not prefill:
        return sampling
    return replace(sampling, max_tokens=most, limit_asked=sampling.limit_asked and most >= asked)


def _too_long(characters: int, renderer: Renderer, context_length: int) -> PromptTooLong:
    """The 400 for this many characters, which are more than fit."""
    tokens = -(-characters // renderer.most_characters(1))
    return PromptTooLong(tokens, context_length, param=Field.MESSAGES)


def check_model(request: ModelRequest, names: Collection[str]) -> None:
    """Raise 404 for a model that is not served here. A request without one is served."""
    if request.model and request.model not in names:
        message = f"The model {shown(request.model)} is not served here: {', '.join(names)}."
        raise RequestError(404, "model_not_found", message, param=Field.MODEL)


def check_request(request: ModelRequest, names: Collection[str], vocabulary: int, can: Capabilities) -> None:
    """Raise 400 for a token id that the model does not have, for what the engine cannot do, and for options
    that exclude each other. Also raises what `check_model` raises."""
    check_model(request, names)
    bias = [id for id, _ in request.sampling.logit_bias]
    for field, ids in ((Field.LOGIT_BIAS, bias), (Field.STOP_IDS, request.sampling.stop_ids)):
        if max(ids, default=0) >= vocabulary:
            message = f"The model has no token {max(ids)}: its vocabulary has {vocabulary}."
            raise RequestError(400, "invalid_value", message, param=field)

    form, must_call = request.form is not None, request.tool_choice is ToolChoice.REQUIRED
    if must_call and not can.forced_prefix:
        raise _unsupported("tool_choice", Field.TOOL_CHOICE, "This server's engine cannot force a tool call")
    if form and not can.constraint:
        message = f"This server's engine cannot force a form of text{_remedy(can, 'constraint')}"
        raise _unsupported("response_format", Field.FORMAT, message)
    if request.logprobs and request.top_logprobs > (most := can.top_logprobs):
        message = f"This server's engine returns at most {most} alternatives for each token"
        raise _unsupported("parameter", Field.TOP_LOGPROBS, message + _remedy(can, "top_logprobs"))
    if request.prefill and not can.forced_prefix:
        message = (
            "This server's engine cannot go on from a message of the assistant: end with one of the user"
        )
        raise _unsupported("prefill", Field.MESSAGES, message)
    if request.prefill and (must_call or form):
        message = "A message of the assistant that is gone on from cannot be made a tool call or a JSON text"
        raise _unsupported("prefill", Field.MESSAGES, message)


def _unsupported(what: str, field: Field, message: str) -> RequestError:
    return RequestError(400, f"unsupported_{what}", f"{message}.", param=field)


def _remedy(can: Capabilities, lacks: str) -> str:
    return f": {can.remedies[lacks]}" if lacks in can.remedies else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """A request before anything is sampled."""

    asked: ModelRequest
    prompt: Prompt
    adapter: str
    teaches: bool
    incoming: IncomingRequest
    """Its turn is that of the first choice; the response id ends with it."""
    created: float
    """Seconds since the epoch."""

    @property
    def turns(self) -> tuple[str, ...]:
        """The turn of each choice."""
        first = self.incoming.turn
        return (first, *(choice_turn(first, index) for index in range(1, self.asked.choices)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A request with its place in its session."""

    incoming: IncomingRequest
    binding: Binding
    kind: Kind
    """The request's kind, given its siblings so far."""
    answered: bool
    """Whether it holds the next state of an earlier turn."""


def bind_request(
    store: Store, incoming: IncomingRequest, *, teaches: bool, now: float, own: Collection[str] = ()
) -> Bound:
    """Bind a request. If its key teaches, record the next states that it holds. `own`: turns of its response
    that may be stored already."""
    own = (incoming.turn, *own)
    with store.binding(incoming.scope):
        binding = look_up(store, incoming, own)
        resolved = _resolved(store, binding, own=own)
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


def look_up(store: ParentLookup, incoming: IncomingRequest, own: Collection[str] = ()) -> Binding:
    """Bind a request to what the store holds, apart from its `own` turns.

    A session's turns are looked up only if the request is known to go on in it. Recent conversations are
    looked up only if the request has no parent or an auxiliary one: it may be about a conversation, or
    continue it.
    """
    scope, session = incoming.scope, incoming.client_session_hash

    def replies(sessions: Collection[str]) -> list[Candidate]:
        return [one for one in store.replies(scope, sessions) if one.turn not in own]

    found = store.candidates(scope, incoming.hashes, incoming.named, client_session=session)
    found = [one for one in found if one.turn not in own]
    if sessions := continued_sessions(incoming, found):
        found = with_replies(found, replies(sessions))
    binding = bind(incoming, found) if found else None
    if binding is not None and (binding.parent or binding.reason) and not binding.confirms:
        return binding
    recent = [one for one in store.recent(scope) if one.turn not in own]
    if sessions := resumed(incoming, recent):
        found = with_replies(found, replies(sessions))
    return bind(incoming, found, recent)


def session_lessons(store: Store, bound: Bound, now_known: Callable[[Store], str]) -> str:
    """The lessons in the prompt of a bound request: those of the turn that it follows or repeats, else those
    that are known now. So a session's prompts share their beginning, and its prefix stays cached."""
    earlier = bound.binding.parent or bound.binding.retry_of
    return now_known(store) if earlier is None else store.lessons_shown(earlier)


def listed(words: Sequence[str], renderer: Renderer, *, most: int, tokens: int) -> str:
    """Lessons as a prompt shows them: as many as there is room for, in their order."""
    text = ""
    for each in words[:most]:
        longer = f"{text or LESSONS}\n- {' '.join(each.split())}"
        if len(renderer.encode(longer)) > tokens:
            break
        text = longer
    return text


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
    for turn, kind in resolved.changes:
        store.set_kind(turn, kind, now=now)
    if resolved.confirmed is not None:
        _answer_again(store, resolved.confirmed, now)


def _answer_again(store: Store, confirmed: str, now: float) -> None:
    """A turn turned out to be on the main line: the messages it added are its own parent's next state."""
    turn = store.turn(confirmed).turn
    if turn.parent is None or (parent := store.candidate(turn.parent)) is None:
        return
    if (before := store.find(turn.parent)) is None:  # its content was pruned, so it cannot train
        return
    if messages := added_messages(turn.conversation.messages, before.turn, parent.full_depth):
        store.answer(turn.parent, messages, answered_by=confirmed, now=now)
