"""`afterwit import`: conversations recorded elsewhere become turns of the home.

A line of a file is a JSON object. `messages` alone is a whole conversation in OpenAI chat's form
(`openai_chat`). With `response_text` it is one turn in OpenClaw-RL's form (`openclaw_rl`), and its session is
put together again.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap, takewhile
from typing import Any, NamedTuple

import orjson

from afterwit.binding.client_text import without_named_blocks
from afterwit.binding.request import ClientSession, IncomingRequest, read_request
from afterwit.dialects.chat import as_function, parse_messages
from afterwit.dialects.fields import as_object, as_text, parse_tools, text, wrong_value
from afterwit.dialects.request import RequestLimits
from afterwit.errors import RequestError, TurnNotFound
from afterwit.lifecycle import Reason
from afterwit.store import Store
from afterwit.turn import Conversation, Finish, Kind, Message, RecordedTurn, digest_id, observed

MOST = sys.maxsize
LIMITS = RequestLimits(max_choices=1, default_max_tokens=1, max_messages=MOST, max_calls=MOST)
"""Conversations in one's own file may have any length."""

_THOUGHT = re.compile(r"\A\s*+(?:<think>)?(.*?)</think>", re.DOTALL)
_CALL_TAG = re.compile(r"<(/?)(tool_call)>")
_END = re.compile(r"(?:<\|[a-z_]+\|>|</s>)\s*\Z")
"""The mark of a chat template after a response."""

SCOPE = "imported"
"""The scope of imported turns. No key has it, so no request continues them."""


@dataclass(slots=True, kw_only=True)
class Imported:
    """The result of an import, or of a dry run."""

    conversations: int = 0
    turns: int = 0
    known: int = 0
    bad: list[BadLine] = field(default_factory=list)


def import_lines(
    lines: Iterable[bytes],
    store: Store | None,
    *,
    judge: bool,
    dry_run: bool,
    now: Callable[[], float],
    practise: str | None = None,
) -> Imported:
    """Import the conversations of a file's lines. Bad lines are skipped and listed.

    A conversation is stored as a whole or not at all. With `judge` its turns wait for the judge, otherwise
    they end at once. With `dry_run` nothing is stored, and no store is needed. `practise`: the key whose
    lessons the corrections become; None: they are shown alone.
    """
    done = Imported()
    for found in read(lines):
        if isinstance(found, BadLine):
            done.bad.append(found)
            continue
        steps = [(_source(turn, practise), followed) for turn, followed in steps_of(found, now=now())]
        new = [(turn, followed) for turn, followed in steps if not _is_known(store, turn.id)]
        done.conversations += 1
        done.turns += len(new)
        done.known += len(steps) - len(new)
        if store is not None and not dry_run and new:
            whole = _whole(found, new[0][0])
            with store.transaction():
                for turn, followed in new:
                    _add(store, turn, followed, whole, judge=judge, now=now())
    return done


def _source(turn: RecordedTurn, practise: str | None) -> RecordedTurn:
    """The turn as one of this key, which teaches; without a key it teaches no one."""
    scope = turn.scope if practise is None else f"{practise}/{turn.scope}"
    return replace(turn, scope=scope, teaches=practise is not None)


def _is_known(store: Store | None, turn: str) -> bool:
    try:
        return store is not None and store.resolve(turn) == turn
    except TurnNotFound:
        return False


def _whole(recording: Recording, turn: RecordedTurn) -> IncomingRequest:
    """The conversation as one request of the turn's scope, which each of its turns is a beginning of."""
    said = Conversation(messages=recording.messages, tools=recording.tools)
    client = ClientSession()
    return read_request(turn=turn.id, scope=turn.scope, conversation=said, client=client, streamed=False)


def _add(
    store: Store,
    turn: RecordedTurn,
    followed: tuple[Message, ...],
    whole: IncomingRequest,
    *,
    judge: bool,
    now: float,
) -> None:
    at = len(turn.conversation.messages)
    depth, full_depth = (
        bisect_left(whole.segments, end, key=lambda segment: segment.message) for end in (at, at + 1)
    )
    reason = None if judge else Reason.NOT_SAMPLED_HERE
    if not followed:
        reason = Reason.NO_NEXT_STATE
    if not (turn.message.content or turn.message.tool_calls):
        reason = Reason.EMPTY_RESPONSE
    store.add_turn(
        turn,
        prompt_hash=whole.fingerprints[depth],
        full_hash=whole.fingerprints[full_depth],
        depth=depth,
        full_depth=full_depth,
        delivered=True,
        reason=reason,
        now=now,
    )
    if followed:
        store.answer(turn.id, followed, answered_by=None, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that cannot be imported."""

    number: int
    """Its number in the file, from 1 on."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The messages of a conversation, and the responses among them to import."""

    messages: tuple[Message, ...]
    responses: tuple[int, ...]
    """Indices of messages, in order. Each is the assistant's and follows at least one message."""
    tools: tuple[Mapping[str, Any], ...] = ()
    model: str = "unknown"

    def __post_init__(self) -> None:
        if not self.responses:
            raise ValueError("no message of the assistant follows another message")
        for at in self.responses:
            if not 0 < at < len(self.messages):
                raise ValueError(f"a response at index {at} of {len(self.messages)} messages")
            if self.messages[at].role != "assistant":
                raise ValueError(f"the response at index {at} is a message of the {self.messages[at].role}")


class _Exchange(NamedTuple):
    """One turn of a session in OpenClaw-RL's form."""

    before: tuple[Message, ...]
    response: Message
    next_state: tuple[Message, ...]


def read(lines: Iterable[bytes]) -> Iterator[Recording | BadLine]:
    """The recordings of a file's lines, in order. A session of several records comes when its end is known.

    Empty lines are left out.
    """
    chains: dict[str, tuple[_Exchange, dict[int, Message]]] = {}  # the last exchange, and all responses
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = orjson.loads(line.removeprefix(BOM_UTF8) if number == 1 else line)
            if not (isinstance(data, Mapping) and "session_id" in data and "response_text" in data):
                yield _conversation(data)
                continue
            session, exchange = as_text(data["session_id"], "session_id"), _exchange(data)
            chain, at = chains.get(session), len(exchange.before)
            if chain is not None and _continues(exchange, chain[0]):
                chain[1][at] = exchange.response
                chains[session] = exchange, chain[1]
                continue
            chains[session] = exchange, {at: exchange.response}
            if chain is not None:
                yield _recording(*chain)
        except orjson.JSONDecodeError as error:
            yield BadLine(number=number, reason=f"not valid JSON: {error}")
        except RequestError as error:
            yield BadLine(number=number, reason=error.message)
        except ValueError as error:
            yield BadLine(number=number, reason=str(error))
    yield from starmap(_recording, chains.values())


def _conversation(data: Any) -> Recording:
    """Every response of the conversation."""
    line = as_object(data, "the line")
    if "messages" not in line:
        raise wrong_value(
            "the line", 'has no messages; a conversation is {"messages": [...]}, as OpenAI writes it'
        )
    messages = parse_messages(line.get("messages"), LIMITS)
    return Recording(
        messages=messages,
        responses=tuple(at for at, message in enumerate(messages) if at and message.role == "assistant"),
        tools=parse_tools(line.get("tools"), MOST, as_function)[0],
        model=text(line, "model") or "unknown",
    )


def _exchange(data: Mapping[str, Any]) -> _Exchange:
    """The response is without the marks of its template, and without the text of parsed calls."""
    before, next_state = parse_messages(data.get("messages"), LIMITS), tuple[Message, ...]()
    if data.get("next_state") is not None:
        next_state = parse_messages([as_object(data["next_state"], "next_state")], LIMITS)
        if next_state[0].role == "assistant":
            raise wrong_value("next_state", "is a message of the assistant")
    said, calls = as_text(data["response_text"], "response_text"), data.get("tool_calls")
    thought = _THOUGHT.match(said)
    content = _END.sub("", said[thought.end() :] if thought else said)
    written = (without_named_blocks(content, _CALL_TAG, "") if calls else content).strip()
    (response,) = parse_messages([{"role": "assistant", "content": written, "tool_calls": calls}], LIMITS)
    reasoning = thought[1].strip() or None if thought else None
    return _Exchange(before, replace(response, reasoning=reasoning), next_state)


def _continues(exchange: _Exchange, earlier: _Exchange) -> bool:
    """Whether an exchange's messages are the earlier one's, a response, and something more."""
    at = len(earlier.before)
    repeats = exchange.before[:at] == earlier.before and len(exchange.before) > at + 1
    return repeats and exchange.before[at].role == "assistant"


def _recording(last: _Exchange, responses: Mapping[int, Message]) -> Recording:
    """The last exchange has all messages; each earlier response replaces its echo there."""
    messages = [*last.before, last.response, *last.next_state]
    for at, response in responses.items():
        messages[at] = response
    return Recording(messages=tuple(messages), responses=tuple(responses))


def steps_of(recording: Recording, *, now: float) -> list[tuple[RecordedTurn, tuple[Message, ...]]]:
    """The turns, each the parent of the next, and the next messages of people and tools after each; () if
    nothing followed. Equal recordings always have equal ids."""
    steps = list[tuple[RecordedTurn, tuple[Message, ...]]]()
    parent: RecordedTurn | None = None
    written = [_json(message.to_dict()) for message in recording.messages]
    tools = _json([dict(tool) for tool in recording.tools])
    begun, begins, hashed = hashlib.sha256(), "[[", 0  # the list of all before a response, read once
    for at in recording.responses:
        response, reaction = recording.messages[at], following(recording.messages, at)
        begun.update((begins + ", ".join(written[hashed:at])).encode())
        begins, hashed, digest = ", ", at, begun.copy()
        followed = _json([message.to_dict() for message in reaction])
        digest.update(f"], [{written[at]}], {followed}, {tools}]".encode())
        id = digest_id(digest.digest()[:16])
        parent = RecordedTurn(
            id=id,
            scope=SCOPE,
            session=id if parent is None else parent.session,
            parent=None if parent is None else parent.id,
            kind=Kind.MAIN,
            created=now,
            model=recording.model,
            conversation=Conversation(messages=recording.messages[:at], tools=recording.tools),
            message=response,
            finish=Finish.TOOL_CALLS if response.tool_calls else Finish.STOP,
        )
        steps.append((parent, reaction))
    return steps


def _json(data: Any) -> str:
    return json.dumps(data, sort_keys=True)


def following(messages: Sequence[Message], at: int) -> tuple[Message, ...]:
    """The messages of people and tools after index `at`, up to the assistant's next one.

    If there are none, the system's, as results of tools.
    """
    rest = map(messages.__getitem__, range(at + 1, len(messages)))
    after = tuple(takewhile(lambda message: message.role != "assistant", rest))
    return tuple(message for message in after if message.role in ("user", "tool")) or observed(after)
