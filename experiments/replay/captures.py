"""Recorded sessions of real clients, labelled by hand, as plays.

A folder holds one JSON file for each session, a list of requests, and `labels.json`, which labels each
request of each file: whether it is auxiliary, which earlier one it follows and which one it answers.
Two forms of request are read: `{headers, tools, stream, messages, response}`, where `tools` are names, and
`{path, headers, body, mock_response}` as a recording server writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afterwit.dialects.chat import parse_request as parse_chat
from afterwit.dialects.messages import parse_request as parse_messages
from afterwit.dialects.responses import parse_request as parse_responses
from afterwit.gateway.settings import GatewaySettings
from afterwit.importing.importing import following
from afterwit.turn import Conversation, Message
from experiments.replay.hosts.bodies import CHAT, MESSAGES, PATHS, RESPONSES, tools_of
from experiments.replay.traffic import Ask, Play

RECORDED = Path(__file__).parents[2] / "tests" / "binding" / "fixtures"
"""The captures of the project."""
LABELS = "labels.json"
"""File of a folder of captures: for each session its dialect, and a label for each request in order."""
PARSERS = {CHAT: parse_chat, RESPONSES: parse_responses, MESSAGES: parse_messages}
ENOUGH = 8
"""Least characters of a reply that a twin's differs in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The truth about one request; numbers are places in the session."""

    side: bool = False
    parent: int | None = None
    answers: int | None = None
    """The request whose next state it carries; None: its parent."""
    says: tuple[str, ...] | None = None
    """The person's texts in it; None: the last messages."""
    last: int | None = None
    """How many messages at its end are that next state; None: all after the last reply."""
    again: int | None = None
    session: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One request as it was sent, and the answer that it got."""

    dialect: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    reply: Message
    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    name: str
    requests: tuple[Recorded, ...]


def captures(folder: Path) -> list[Capture]:
    """The labelled sessions of a folder. Raises ValueError if labels and requests are not as many."""
    labels = json.loads((folder / LABELS).read_text(encoding="utf-8"))
    return [_capture(folder / f"{name}.json", known) for name, known in labels.items()]


def _capture(file: Path, known: Mapping[str, Any]) -> Capture:
    sent = [one for one in json.loads(file.read_text(encoding="utf-8")) if _asks(one)]
    labels = [Label(**{**one, "says": _said(one.get("says"))}) for one in known["requests"]]
    if len(labels) != len(sent):
        raise ValueError(f"{file.name}: {len(sent)} requests but {len(labels)} labels")
    pairs = zip(sent, labels, strict=True)
    made = tuple(_recorded(one, known.get("dialect", CHAT), label) for one, label in pairs)
    return Capture(name=file.stem, requests=made)


def _said(says: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if says is None else tuple(says)


def _asks(request: Mapping[str, Any]) -> bool:
    """Whether it requests a response: recordings hold looked-up models and counted tokens as well."""
    return "messages" in request or any(request["path"].split("?")[0] == path for path in PATHS.values())


def _recorded(request: Mapping[str, Any], dialect: str, label: Label) -> Recorded:
    headers = {name.lower(): value for name, value in request["headers"].items()}
    if "path" in request:
        dialect = next(name for name, path in PATHS.items() if request["path"].split("?")[0] == path)
        body, said = _whole(request["body"]), _mocked(request["mock_response"], dialect)
    else:
        body, said = _body(request, dialect), request["response"]
    return Recorded(dialect=dialect, headers=headers, body=body, reply=_reply(dialect, said), label=label)


def _body(request: Mapping[str, Any], dialect: str) -> dict[str, Any]:
    sent = [item for one in request["messages"] for item in (one if isinstance(one, list) else [one])]
    field = "input" if dialect == RESPONSES else "messages"
    return {field: sent, "stream": request["stream"], "tools": tools_of(request["tools"], dialect)}


def _whole(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body without the note that replaces tools that the recording left out."""
    tools = [tool for tool in body.get("tools") or () if isinstance(tool, dict)]
    return {**body, "tools": tools} if tools else body


def _mocked(response: Mapping[str, Any], dialect: str) -> Any:
    """The answer of the recording server, in the dialect's form."""
    if dialect == RESPONSES:
        return response["output"]
    if dialect == MESSAGES:
        return {"role": "assistant", "content": response["content"]}
    made = {"role": "assistant", "content": response.get("text")}
    if response.get("tool_calls"):
        made["tool_calls"] = response["tool_calls"]
    return response.get("msg", made)


def conversation(dialect: str, body: Mapping[str, Any]) -> Conversation:
    """A request's conversation, read by the gateway's own parser."""
    limits = GatewaySettings().request_limits
    return PARSERS[dialect]({"model": "any", "max_tokens": 8, **body}, limits).conversation


def _reply(dialect: str, said: Any) -> Message:
    """Read a reply with a user message after it: at the end it would be the beginning of a response."""
    behind = {"role": "user", "content": "."}
    if dialect == RESPONSES:
        return conversation(dialect, {"input": [*said, behind]}).messages[0]
    return conversation(dialect, {"messages": [said, behind]}).messages[0]


def captured(capture: Capture, *, copy: int = 0) -> Play:
    """A session with our tool-call ids in the place of the recorded ones. A twin's replies differ."""
    ours: dict[str, str] = {}
    for at, recorded in enumerate(capture.requests):
        reply = _twin(recorded.reply, copy)
        body, says = _rewritten([recorded.body, recorded.label.says], ours)
        (answer,) = yield (_ask(recorded, str(at), body, says, reply),)
        ours |= dict(_renamed(recorded.reply, answer))
        if reply.content != recorded.reply.content:
            ours[_quoted(recorded.reply)] = _quoted(reply)


def _ask(
    recorded: Recorded, name: str, body: dict[str, Any], says: Sequence[str] | None, reply: Message
) -> Ask:
    label, read = recorded.label, conversation(recorded.dialect, body)
    answers = label.parent if label.answers is None else label.answers
    told = tuple(_told(read.messages, says, label.last))
    return Ask(
        name=name,
        messages=read.messages,
        reply=reply,
        tools=tuple(tool["function"]["name"] for tool in read.tools),
        streamed=bool(body.get("stream")),
        headers=recorded.headers,
        session=label.session,
        side=label.side,
        parent=None if label.parent is None or label.side else str(label.parent),
        says={} if answers is None or label.side else {str(answers): told},
        again=None if label.again is None else str(label.again),
        dialect=recorded.dialect,
        body=body,
    )


def _told(messages: Sequence[Message], says: Sequence[str] | None, last: int | None) -> Iterator[Message]:
    if says is not None:
        yield from (Message(role="user", content=text) for text in says)
        return
    spoken = max((at for at, one in enumerate(messages) if one.role == "assistant"), default=-1)
    first = spoken + 1 if last is None else len(messages) - last
    yield from following(messages, first - 1)


def _twin(reply: Message, copy: int) -> Message:
    said = reply.content or ""
    return replace(reply, content=f"({copy}) {said}") if copy and len(said) >= ENOUGH else reply


def _renamed(recorded: Message, answer: Message) -> Iterator[tuple[str, str]]:
    for theirs, our in zip(recorded.tool_calls, answer.tool_calls, strict=True):
        yield theirs.id, our.id
        yield theirs.id.replace("_", ""), our.id


def _quoted(reply: Message) -> str:
    """Its text as in JSON. Clients strip white space at its ends."""
    return json.dumps((reply.content or "").strip())[1:-1]


def _rewritten(recorded: Any, changes: Mapping[str, str]) -> Any:
    """JSON with some texts replaced."""
    text = json.dumps(recorded)
    for theirs, our in changes.items():
        text = text.replace(theirs, our)
    return json.loads(text)
