"""An incoming request, read once for binding: its segments, its fingerprints and the turns it names.

Clients return the history changed: arguments are serialised again, reasoning and `name` dropped, white space
stripped, temporary blocks added and removed, ids lose underscores. A segment holds only what they do not
change.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from sys import getsizeof
from typing import Any, NamedTuple

from afterwit.binding.client_text import without_additions, without_passing_blocks
from afterwit.byte_cache import ByteCache
from afterwit.text import without_halves
from afterwit.turn import SYSTEM, Conversation, Kind, Message, calls_in, plain_id, turn_of_call

CALL = "call"
"""First part of a call's segment; the second is its id."""

MOST_NAMED = 64
"""Most turns that are looked up by the calls that a request names, the latest first."""

HASH_BYTES = 16

TINY = 2
"""Most messages of a tiny request, without the system's."""

MOST_SYSTEM_BYTES = 8 * 2**20
"""Bytes of the system texts whose hashes are cached."""

MOST_MESSAGES = 4
"""The last user messages that are split into heads."""

MOST_HEADS = 8
"""The last places in a message where a client may have joined two."""

LONGEST_JOINED = 16_384
"""Characters of a message that is split."""

PARAGRAPH = "\n\n"

DISTINCTIVE = 40
"""Least characters of a text, or of several together, that identify one conversation."""

MOST_READ_BYTES = 32 * 2**20
"""Bytes of messages whose reading is cached: 200 conversations of 100 kB."""

_SESSION_HEADERS = (
    ("x-session-id",),
    ("session-id", "thread-id"),
    ("session_id",),
    ("x-session-affinity",),
    ("x-thread-id",),
)
"""The client's ids of a session, in order of trust; the headers of one entry are read together."""

_IDS = frozenset(
    {"x-parent-session-id", "x-session-done", "x-turn-type", "x-codex-turn-metadata", "x-interaction-type"}
    | {"metadata", "prompt_cache_key", "turn_type", "session_done"}
).union(*_SESSION_HEADERS)
"""All headers and fields that are read here: most requests have none."""

_SIDE_INTERACTIONS = frozenset({"conversation-compaction", "conversation-background"})
"""Interaction types of the side turns of GitHub's Copilot."""

_YES = frozenset({"1", "true", "yes", "on"})

_COUNTED = re.compile(r":\d+\Z")
_LONGEST = 256
_LONGEST_PACKED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSession:
    """The client's own statements about its session.

    Requests with different ids never match. An equal id does not prove a parent: titles, compactions and
    sub-agents may share it.
    """

    session: str | None = None
    """The client's id of the session; a sub-agent without one gets it from its parent's."""
    turn_type: Kind | None = None
    done: bool = False
    """Whether the client declares this the last request of the session."""


def client_session_of(headers: Mapping[str, str], body: Any) -> ClientSession:
    """Read the ids of a request. `headers` have lower-case names. Malformed ids are ignored."""
    fields = body if isinstance(body, Mapping) else {}
    if _IDS.isdisjoint(headers) and _IDS.isdisjoint(fields):
        return ClientSession()
    metadata = fields.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    packed = None
    if isinstance(user, str) and len(user) <= _LONGEST_PACKED and user.startswith("{"):
        packed = _json_field(without_halves(user), "session_id")  # Claude Code packs several ids
    said = [" ".join(filter(None, (_id(headers.get(name)) for name in names))) for names in _SESSION_HEADERS]
    said += [_id(value) for value in (packed, user, fields.get("prompt_cache_key"), fields.get("session_id"))]
    session = next(filter(None, said), None)
    if session is None and (parent := _id(headers.get("x-parent-session-id"))):
        session = f"under {parent}"
    done = {_word(headers.get("x-session-done")), _word(fields.get("session_done"))}
    turn_type = _turn_type(headers, fields.get("turn_type"))
    return ClientSession(session=session, turn_type=turn_type, done=not done.isdisjoint(_YES))


def _turn_type(headers: Mapping[str, str], field: Any) -> Kind | None:
    for said in (_word(headers.get("x-turn-type")), _word(field)):
        if said in (Kind.MAIN, Kind.SIDE):
            return Kind(said)
    if headers.get("x-interaction-type", "").strip().lower() in _SIDE_INTERACTIONS:
        return Kind.SIDE
    kind = _json_field(headers.get("x-codex-turn-metadata", ""), "request_kind")
    return Kind.SIDE if isinstance(kind, str) and kind != "turn" else None


def _word(value: Any) -> str:
    """A header or a field in lower case, such as `true`; empty if it is not a word."""
    return str(value).strip().lower() if isinstance(value, str | int) else ""


def _json_field(text: str, name: str) -> Any:
    """A field of a JSON object; None if the text is not one."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed.get(name) if isinstance(parsed, dict) else None


def _id(value: Any) -> str:
    """An id without the `:N` that counts requests; empty if there is none."""
    return _COUNTED.sub("", value.strip())[:_LONGEST] if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The signature of a request: its tools, its stream, its system text."""

    tools: frozenset[str]
    streamed: bool
    system: str = ""
    """Hash of the system text; empty if there is none."""
    tiny: bool = False
    """Whether it has at most `TINY` messages. Not stored."""

    def __str__(self) -> str:
        """One line for the store; `Shape.read` reads it."""
        data = {"streamed": self.streamed, "system": self.system, "tools": sorted(self.tools)}
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def read(cls, line: str) -> Shape:
        data = json.loads(line)
        return cls(tools=frozenset(data["tools"]), streamed=data["streamed"], system=data["system"])


class Segment(NamedTuple):
    """A text, a tool call or a tool result."""

    parts: tuple[str, ...]
    message: int


class Head(NamedTuple):
    """The beginning of a user message that may have been a message of its own before."""

    fingerprint: bytes
    """Fingerprint of the conversation up to its end."""
    message: int
    """Index of the message."""
    rest: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRequest:
    """Build it with `read_request`."""

    turn: str
    """The id that the (first) response will have; a new session is named after it."""
    scope: str
    """Key and client family: nothing of another scope can match it."""
    messages: tuple[Message, ...]
    texts: tuple[str, ...]
    client: ClientSession
    shape: Shape
    segments: tuple[Segment, ...]
    fingerprints: tuple[bytes, ...]
    """Entry d is of the first d segments."""
    mentions: Mapping[str, int]
    """Turns whose tool calls are made or answered, with the index of the first such message."""
    written: Mapping[str, int]
    """The same for turns whose call ids are in the text of a reply. Anyone may quote an id."""
    heads: tuple[Head, ...] = ()
    """Heads of the user messages that no reply follows."""
    follows: str | None = None
    """The previous turn, if the client names it."""

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """The hashes to look up among the stored turns, shallow to deep."""
        return (*self.fingerprints[1:], *(head.fingerprint for head in self.heads))

    @property
    def named(self) -> tuple[str, ...]:
        """The turns to look up because the request names their calls; the last `MOST_NAMED`."""
        named = {**self.written, **self.mentions}
        return tuple(sorted(named, key=named.__getitem__))[-MOST_NAMED:]

    @property
    def client_session_hash(self) -> bytes | None:
        """Hash of the client's session id; None if it sent none."""
        return None if self.client.session is None else self.fingerprints[0]

    @property
    def prompt_hash(self) -> bytes:
        return self.fingerprints[-1]

    @property
    def depth(self) -> int:
        """Segments of the prompt."""
        return len(self.segments)

    @property
    def last_reply(self) -> tuple[int, str] | None:
        """Index and text of the assistant's last message; None without one, or if its text is empty."""
        index = last_reply(self.messages)
        return (index, self.texts[index]) if index is not None and self.texts[index] else None

    @property
    def open(self) -> int:
        """Index of the first message that no reply follows."""
        index = last_reply(self.messages)
        return 0 if index is None else index + 1

    def said(self, *roles: str, after: int = 0, end: int | None = None) -> list[str]:
        """The texts of these roles' messages, from index `after` on up to `end`, without empty ones."""
        pairs = zip(self.messages[after:end], self.texts[after:end], strict=True)
        return [text for message, text in pairs if text and message.role in roles]

    def starts_with(self, fingerprint: bytes, depth: int) -> bool:
        """Whether the first `depth` segments have this fingerprint."""
        return depth <= self.depth and self.fingerprints[depth] == fingerprint

    def message_after(self, depth: int) -> int:
        """Index of the first message after the first `depth` segments."""
        return self.segments[depth - 1].message + 1 if depth else 0

    def full(self, response: Message) -> tuple[bytes, int]:
        """The fingerprint and the number of segments of the prompt with its response."""
        said = read_message(response).segments
        return extend(self.prompt_hash, said), self.depth + len(said)


def read_request(
    *,
    turn: str,
    scope: str,
    conversation: Conversation,
    client: ClientSession,
    streamed: bool,
    follows: str | None = None,
) -> IncomingRequest:
    """Read a request for binding. Nothing of another `scope` or another explicit id can match it."""
    messages = conversation.messages
    read = [read_message(message) for message in messages]
    segments = segments_of(read)
    known = fingerprints(segments, f"{scope}\0{client.session or ''}")
    return IncomingRequest(
        turn=turn,
        scope=scope,
        messages=messages,
        texts=tuple(one.text for one in read),
        client=client,
        shape=shape_of(conversation, streamed=streamed),
        segments=segments,
        fingerprints=known,
        mentions=first_index(one.turns for one in read),
        written=first_index(one.written for one in read),
        heads=_heads(messages, segments, known),
        follows=follows,
    )


def last_reply(messages: Sequence[Message]) -> int | None:
    """Index of the last message of the assistant."""
    return next((at for at in reversed(range(len(messages))) if messages[at].role == "assistant"), None)


def first_index(turns: Iterable[Iterable[str]]) -> dict[str, int]:
    """Each turn, with the index of the first message that names it."""
    first: dict[str, int] = {}
    for index, named in enumerate(turns):
        for turn in named:
            first.setdefault(turn, index)
    return first


def shape_of(conversation: Conversation, *, streamed: bool) -> Shape:
    """The signature of a request."""
    system = [message.content or "" for message in conversation.messages if message.role in SYSTEM]
    return Shape(
        tools=frozenset(tool["function"]["name"] for tool in conversation.tools),
        streamed=streamed,
        system=_digest(" ".join(system)),
        tiny=len(conversation.messages) - len(system) <= TINY,
    )


def _system_hash(text: str) -> str:
    text = collapse(text)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest() if text else ""


_digest = ByteCache(_system_hash, most_bytes=MOST_SYSTEM_BYTES, size=lambda text, digest: getsizeof(text))
"""The requests of a session repeat one system text."""


def _heads(
    messages: Sequence[Message], segments: Sequence[Segment], known: Sequence[bytes]
) -> tuple[Head, ...]:
    """The heads of the last user messages that no reply follows.

    If a reply was empty, some clients leave it out and join the user messages around it.
    """
    replied = last_reply(messages)
    opened = range(0 if replied is None else replied + 1, len(messages))
    said = [index for index in opened if messages[index].role == "user"]
    ends = [segment.message for segment in segments]
    heads = []
    for index in said[-MOST_MESSAGES:]:
        message, content, depth = messages[index], messages[index].content or "", bisect_left(ends, index)
        if len(content) > LONGEST_JOINED:
            continue
        starts, at = set(message.breaks), content.find(PARAGRAPH)
        while at >= 0:
            starts.add(at + len(PARAGRAPH))
            at = content.find(PARAGRAPH, at + 1)
        for start in sorted(starts)[-MOST_HEADS:]:
            text, rest = plain_text(replace(message, content=content[:start])), content[start:].strip()
            if text and rest and (depth or len(text) >= DISTINCTIVE):
                fingerprint = extend(known[depth], [("user", text)])
                heads.append(Head(fingerprint, index, replace(message, content=rest, breaks=())))
    return tuple(heads)


class ReadMessage(NamedTuple):
    """A message, read."""

    text: str
    segments: tuple[tuple[str, ...], ...]
    """By their parts. System text and empty text have none; each tool call is one."""
    turns: tuple[str, ...]
    """Turns whose tool calls it makes or answers."""
    written: tuple[str, ...]
    """Turns whose call ids are in the assistant's text: some clients write calls out. No proof alone."""


def _read(message: Message) -> ReadMessage:
    text = plain_text(message)
    segments: list[tuple[str, ...]] = []
    if message.role == "tool":
        segments = [("tool", plain_id(message.tool_call_id or ""), text)]
    elif message.role not in SYSTEM:
        segments = [(message.role, text)] if text else []
        for call in message.tool_calls:
            segments.append((CALL, plain_id(call.id), call.name, canonical_json(call.arguments)))
    calls = (*(call.id for call in message.tool_calls), message.tool_call_id or "")
    written = calls_in(message.content or "") if message.role == "assistant" else ()
    named, quoted = (tuple(filter(None, map(turn_of_call, found))) for found in (calls, written))
    return ReadMessage(text, tuple(segments), named, quoted)


def _bytes(message: Message, read: ReadMessage) -> int:
    """The segments repeat the text in whole or in part; a call's arguments are held twice."""
    arguments = sum(getsizeof(call.arguments) for call in message.tool_calls)
    return getsizeof(message.content) + getsizeof(message.reasoning) + getsizeof(read.text) + 2 * arguments


read_message = ByteCache(_read, most_bytes=MOST_READ_BYTES, size=_bytes)


def plain_text(message: Message) -> str:
    """A message's text as it is compared: without thinking and the client's blocks, white space collapsed."""
    text = message.content or ""
    return collapse(without_additions(text) if message.role == "assistant" else without_passing_blocks(text))


def collapse(text: str) -> str:
    """Every run of white space as one space, none at the ends."""
    return " ".join(text.split())


def segments_of(read: Iterable[ReadMessage]) -> tuple[Segment, ...]:
    """The segments of a conversation's messages."""
    return tuple(Segment(parts, index) for index, one in enumerate(read) for parts in one.segments)


def canonical_json(text: str) -> str:
    """JSON with sorted keys and one spelling of each value; other text with its white space collapsed."""
    try:
        parsed = json.loads(text, parse_int=_number, parse_float=_number)
        return json.dumps(parsed, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return collapse(text)


def _number(text: str) -> Any:
    """A number as JavaScript reads it: a double, and 1.0 is 1."""
    value = float(text)
    return int(value) if math.isfinite(value) and value.is_integer() else value


def fingerprints(segments: Iterable[Segment], namespace: str) -> tuple[bytes, ...]:
    """Rolling hashes: entry d is of the first d segments. They can be equal only in one `namespace`."""
    hashes = [_hash(b"", namespace)]
    for segment in segments:
        hashes.append(_hash(hashes[-1], *segment.parts))
    return tuple(hashes)


def extend(fingerprint: bytes, segments: Iterable[tuple[str, ...]]) -> bytes:
    """The fingerprint after more segments, given by their parts."""
    for parts in segments:
        fingerprint = _hash(fingerprint, *parts)
    return fingerprint


def _hash(before: bytes, *parts: str) -> bytes:
    digest = hashlib.blake2b(before, digest_size=HASH_BYTES)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8))
        digest.update(data)
    return digest.digest()
