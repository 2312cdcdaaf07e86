"""A turn, one action of the policy as it was sampled or recorded: its conversation, its adapter and its ids.

Messages have one form that all layers share: OpenAI chat's, without variants."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from afterwit.text import without_halves

SYSTEM = ("system", "developer")

ROLES = (*SYSTEM, "user", "assistant", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool; `arguments` is the JSON text as it was written."""

    id: str
    name: str
    arguments: str

    def to_dict(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}

    def named_arguments(self) -> dict[str, Any] | None:
        """The arguments by name; None if their text is not a JSON object."""
        try:
            found = json.loads(without_halves(self.arguments))
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolCall:
        function = data["function"]
        return cls(id=data["id"], name=function["name"], arguments=function["arguments"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. `content` is its text; None if there is none (only tool calls)."""

    role: str
    content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    breaks: tuple[int, ...] = field(default=(), compare=False)
    """The places in `content` where a client's further parts begin. For binding; not stored."""

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role {self.role!r} is none of {', '.join(ROLES)}")

    def to_dict(self) -> dict[str, Any]:
        """OpenAI chat's JSON; absent fields are left out, except `content`."""
        data: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning is not None:
            data["reasoning_content"] = self.reasoning
        if self.tool_calls:
            data["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        if self.tool_call_id is not None:
            data["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            data["name"] = self.name
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """The inverse of `to_dict`. Foreign JSON is parsed by the dialects."""
        return cls(
            role=data["role"],
            content=data.get("content"),
            reasoning=data.get("reasoning_content"),
            tool_calls=tuple(ToolCall.from_dict(call) for call in data.get("tool_calls", ())),
            tool_call_id=data.get("tool_call_id"),
            name=data.get("name"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Everything the chat template is given: its rendering is the prompt."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """OpenAI tool objects, keys in the client's order: templates print them as they are."""
    template_args: Mapping[str, Any] = field(default_factory=dict)
    """Extra variables of the template, such as `enable_thinking`."""
    instructed: bool = False
    """The first message is the request's own instructions: a response that follows does not inherit it."""
    lessons: str = ""
    """The gateway's addition to the rendered messages; `messages` are the client's alone."""

    def __post_init__(self) -> None:
        if not self.messages:
            raise ValueError("a conversation needs at least one message")

    @property
    def rendered(self) -> tuple[Message, ...]:
        """The messages as the template reads them: the lessons begin the first user message.

        Small models hardly follow them in the instructions. Later requests of a session share this
        beginning, so its prefix stays cached.
        """
        if not self.lessons:
            return self.messages
        at = next((at for at, message in enumerate(self.messages) if message.role == "user"), 0)
        shown = self.messages[at]
        content = f"{self.lessons}\n\n{shown.content or ''}".strip()
        return (*self.messages[:at], replace(shown, content=content), *self.messages[at + 1 :])

    @property
    def characters(self) -> int:
        """Characters of the contents and of the calls' arguments."""
        return len(self.lessons) + sum(
            len(message.content or "") + sum(len(call.arguments) for call in message.tool_calls)
            for message in self.messages
        )

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "messages": [message.to_dict() for message in self.messages],
            "tools": [dict(tool) for tool in self.tools],
            "template_args": dict(self.template_args),
        }
        more = {"instructed": self.instructed, "lessons": self.lessons}
        return {**data, **{name: value for name, value in more.items() if value}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Conversation:
        return cls(
            messages=tuple(Message.from_dict(message) for message in data["messages"]),
            tools=tuple(data["tools"]),
            template_args=data["template_args"],
            instructed=data.get("instructed", False),
            lessons=data.get("lessons", ""),
        )


def observed(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The system's messages after a response, as results of tools.

    Some clients report the results of the model's commands there. If people or tools speak as well, the
    system's messages are only reminders.
    """
    return tuple(replace(one, role="tool") for one in messages if one.role in SYSTEM and one.content)


def one_line(message: Message, width: int) -> str:
    """A message in one line of at most `width` characters: its calls, then its text."""
    parts = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    text = " ".join(" ".join([*parts, message.content or ""]).split())
    return text if len(text) <= width else text[: width - 1] + "…"


SHARED = "shared"
"""The adapter of everyone without a personal one. Whole weights are its versions too."""

Division = Literal["shared", "per_key", "per_session_group"]
"""Who has a personal adapter: no one; each API key; each group of sessions that a key names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPolicy:
    """The adapter of each request."""

    division: Division = "shared"
    shared_keys: Collection[str] = ()
    """Keys without a personal adapter, whatever the division."""

    def of(self, key: str, group: str | None = None) -> str:
        """The adapter of a key's requests, or of the requests of one of its groups of sessions."""
        if self.division == "shared" or key in self.shared_keys:
            return SHARED
        if self.division == "per_session_group" and group is not None:
            return f"group:{key}/{group}"
        return f"key:{key}"


GREEDY_BELOW = 0.05
"""A temperature under this samples the mode: the turn trains by OPD only, at temperature 1."""


class Kind(StrEnum):
    """Whether a turn belongs to the conversation a person follows."""

    MAIN = "main"
    SIDE = "side"
    """A title, a summary, a background review: served, not trained on."""
    UNKNOWN = "unknown"
    """One of several children of a parent, of which the main one is not known yet. Does not train."""
    PRACTICE = "practice"
    """Sampled to practise a lesson on a recorded prompt: no client asked for it, and none gets it. Trains."""


class Basis(StrEnum):
    """The distribution that a log-prob is of."""

    PROCESSED = "processed"
    """After temperature and truncation: the one that was sampled from."""
    RAW = "raw"
    """The model's own, at temperature 1."""


def is_greedy(temperature: float) -> bool:
    """Whether sampling at this temperature takes the mode."""
    return temperature < GREEDY_BELOW


def scoring_temperature(temperature: float) -> float:
    """tau: what the logits of a turn sampled at this temperature are divided by; 1 for a greedy turn."""
    return 1.0 if is_greedy(temperature) else temperature


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the response was sampled. The defaults are OpenAI's."""

    max_tokens: int
    limit_asked: bool = False
    """Whether the client set `max_tokens`, below the limit that applies without it."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0: no limit."""
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False

    @property
    def greedy(self) -> bool:
        return is_greedy(self.temperature)

    @property
    def truncated(self) -> bool:
        """Whether part of the vocabulary could not be sampled."""
        return self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0

    @property
    def penalised(self) -> bool:
        """Whether a penalty or a bias changed the logits."""
        penalties = (self.presence_penalty, self.frequency_penalty, self.repetition_penalty - 1.0)
        return any(penalties) or bool(self.logit_bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The sampled tokens, including the end-of-turn token if it was sampled."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """pi_b: log-probs that the engine reported for these ids."""
    versions: tuple[int, ...]
    """The weight version that sampled each token."""
    forced: tuple[bool, ...]
    """Tokens that a grammar or the caller forced: never in a loss."""
    basis: Basis = Basis.PROCESSED
    cache_version: int | None = None
    """The oldest version whose keys and values these tokens attended to; None: the engine did not say."""

    @property
    def oldest_version(self) -> int:
        """The version that sampled the oldest token; 0 for an empty response."""
        return min(set(self.versions), default=0)

    def __post_init__(self) -> None:
        for name in ("logprobs", "versions", "forced"):
            if len(getattr(self, name)) != len(self.ids):
                raise ValueError(f"{len(self.ids)} ids but {len(getattr(self, name))} {name}")


class Finish(StrEnum):
    """Why a response ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CLIENT_LEFT = "client_left"


def source_of(scope: str) -> str:
    """The key in a scope, which is who teaches. A client can choose its family's name, but not its source."""
    return scope.rpartition("/")[0] or scope


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """The conversation, the response and their place in a session. Unless it is a `Turn`, it was recorded
    elsewhere and imported: its text is known, its tokens are not."""

    id: str
    """Lower-case letters and digits, globally unique; response ids end with it."""
    scope: str
    """API key and client family. Sessions never cross scopes."""
    session: str
    parent: str | None
    kind: Kind
    created: float
    """Seconds since the epoch."""
    model: str
    conversation: Conversation
    message: Message
    """The response as the client received it."""
    finish: Finish
    teaches: bool = True
    """Whether the caller's key has the scope `teach`."""

    @property
    def source(self) -> str:
        """The key that it came with."""
        return source_of(self.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(RecordedTurn):
    """One choice of one response that was sampled here: only such a turn can train."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    sampled: Sampled
    adapter: str = SHARED
    """The adapter that sampled it and learns from it. Its versions are that adapter's, or the base."""


def adapter_of(turn: RecordedTurn) -> str:
    """The adapter that a turn teaches."""
    return turn.adapter if isinstance(turn, Turn) else SHARED


_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32, lower-case."""

_TO_INT = str.maketrans(_DIGITS, "0123456789abcdefghijklmnopqrstuv")
"""Into the digits that `int` reads."""

_TURN_LENGTH = 26
ENTROPY_BYTES = 10

MOST_CALLS = 32**2
"""Tool calls of one response: two digits of an id number them."""

STORED_PREFIX = "call"
"""The prefix of tool-call ids in the store, for all dialects."""

_PREFIXES = (STORED_PREFIX, "toolu")
"""The prefixes of tool-call ids in all dialects."""

_CALL = re.compile(
    rf"(?<![0-9a-z])({'|'.join(_PREFIXES)})[^0-9a-z]?"
    rf"([{_DIGITS}]{{{_TURN_LENGTH}}})([{_DIGITS}]{{2}})(?![0-9a-z])"
)
"""In a lower-case id. A client may have put ours into one of its own, between signs."""

_IN_TEXT = tuple(re.compile(rf"{prefix}(?<!\w{prefix})_?[0-9a-z]{{28}}\b") for prefix in _PREFIXES)
"""In lower-case text. Each begins with letters alone, which is many times faster to look for."""

_NOT_ALPHANUMERIC = re.compile(r"[^0-9a-z]")

_RESPONSE_PREFIX = re.compile(r"\A[a-z]+[-_]")
"""A dialect's prefix of the turn id, such as `chatcmpl-`."""


def turn_id(now: float, entropy: bytes) -> str:
    """A turn's id: 26 lower-case letters and digits that sort by time. `entropy` is 10 random bytes."""
    if len(entropy) != ENTROPY_BYTES:
        raise ValueError(f"a turn id takes {ENTROPY_BYTES} bytes of entropy, not {len(entropy)}")
    number = (int(now * 1000) & (1 << 48) - 1) << 8 * ENTROPY_BYTES | int.from_bytes(entropy)
    return _base32(number, _TURN_LENGTH)


def digest_id(digest: bytes) -> str:
    """A turn's id from 16 bytes of a hash of its content: 26 lower-case letters and digits.

    Raises ValueError for another length.
    """
    if len(digest) != 16:
        raise ValueError(f"an id takes 16 bytes of a hash, not {len(digest)}")
    return _base32(int.from_bytes(digest), _TURN_LENGTH)


def choice_turn(turn: str, index: int) -> str:
    """The turn of a response's choice `index`: the first choice's id plus `index`.

    Raises ValueError if `turn` is not a turn id.
    """
    if len(turn) != _TURN_LENGTH or not set(turn) <= set(_DIGITS):
        raise ValueError("a turn id is 26 lower-case letters and digits")
    return _base32(int(turn.translate(_TO_INT), 32) + index, _TURN_LENGTH)


def turn_of_response(response: str) -> str:
    """The turn that a response id names, whatever its dialect's prefix; a bare turn id names itself.

    The beginning of a response id gives the beginning of the turn's.
    """
    return _RESPONSE_PREFIX.sub("", response)


def call_id(turn: str, index: int) -> str:
    """The id of a turn's tool call: letters and digits only, because clients drop the rest.

    Raises ValueError from index MOST_CALLS on.
    """
    return STORED_PREFIX + turn + _base32(index, 2)


def plain_id(identifier: str) -> str:
    """A tool-call id as it is compared: lower-case letters and digits. One that holds ours is ours."""
    lower = identifier.lower()
    found = _CALL.search(lower)
    return _NOT_ALPHANUMERIC.sub("", lower if found is None else found[0])


def turn_of_call(identifier: str) -> str | None:
    """The turn whose tool call this is; None if the id is not one of ours, and holds none."""
    found = _CALL.search(identifier.lower())
    return found[2] if found else None


def calls_in(text: str) -> list[str]:
    """Possible tool-call ids of ours inside a text, in lower case. Check them with `turn_of_call`."""
    lower = text.lower()
    found = [match for pattern in _IN_TEXT for match in pattern.finditer(lower)]
    return [match[0] for match in sorted(found, key=re.Match.start)]


def with_prefix(prefix: str, identifier: str) -> str:
    """A tool-call id of ours in another dialect's form; any other id as it is."""
    found = _CALL.search(identifier.lower())
    return prefix + found[2] + found[3] if found else identifier


def _base32(number: int, length: int) -> str:
    if not 0 <= number < 32**length:
        raise ValueError(f"{number} does not fit {length} digits")
    return "".join(_DIGITS[number >> 5 * place & 31] for place in reversed(range(length)))
