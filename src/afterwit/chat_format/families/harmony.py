"""gpt-oss: the response is messages, `<|channel|>name<|message|>text<|end|>`; a call names its recipient.

Reasoning is the channel `analysis`, the answer `final`; `commentary` is a call if it has a recipient, else
text before one. The recipient may come before or behind the channel's name.
"""

from __future__ import annotations

import re

from afterwit.chat_format.arguments import Head, JsonAhead
from afterwit.chat_format.calls import Schemas, WrittenCall, ends_in_a_string, object_text, written
from afterwit.chat_format.convention import CallMarks, Convention

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"

ENDS = (END, CALL, RETURN, START)
"""What ends a message; a new one may begin without an end before it."""

NAMESPACE = "functions."
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


def recipient(header: str) -> str | None:
    """The tool that a message's header names."""
    found = _RECIPIENT.search(header)
    return found[1].removeprefix(NAMESPACE) if found else None


def channel(header: str) -> str:
    """The channel that a message's header names; empty if none."""
    found = _CHANNEL.search(header)
    return found[1] if found else ""


def _read(text: str, schemas: Schemas) -> list[WrittenCall]:
    """The call that a whole message is, its header included."""
    header, _, body = text.partition(MESSAGE)
    return written(recipient(header) or "", object_text(body or "{}"))


def _head(text: str) -> Head | None:
    """Of a whole message, as `_read` gets it."""
    header, _, body = text.partition(MESSAGE)
    place = len(text) - len(body.lstrip())
    return Head(recipient(header) or "", place) if body.lstrip().startswith("{") else None


def _opening(name: str | None) -> str:
    begun = f"{CHANNEL}commentary to={NAMESPACE}"
    return begun if name is None else f"{begun}{name} {CONSTRAIN}json{MESSAGE}{{"


HARMONY = Convention(
    name="harmony",
    taught_by=lambda template: CHANNEL in template and MESSAGE in template,
    thoughts=(),
    calls=(CallMarks(begin=MESSAGE, end=CALL, quotes_end=ends_in_a_string),),
    read=_read,
    ahead=lambda schemas: JsonAhead(schemas, _head),
    opening=_opening,
    inner=(START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS),
    content_mark=f"{CHANNEL}final{MESSAGE}",
    grammar="harmony",
)
