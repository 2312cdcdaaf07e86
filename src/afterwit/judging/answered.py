"""Tool calls that were answered well, which no schema can fault.

A schema may be stricter than its tool: the tool takes null for an argument that it can do without, "5" for
an integer, or its own default for a field that the schema requires. Where the call worked, people and the
judge decide how good it was. Where it failed, or nothing came back, the schema decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from afterwit.ids import plain_id
from afterwit.message import Message, ToolCall

OPENING = 200
"""Characters at the beginning of a result that are searched for a failure."""
_FAILED = re.compile(
    r"[\W_]*(?:(?:[\w.]+ ){0,3}\w*(?:error|exception)(?: -?\d+)?\s*(?:[:>\])]|\n|\Z)"
    r"|(?:an |the )?error (?:executing|calling|running|invoking|processing|parsing|reading)\b"
    r"|(?:an |the )?error (?:occurred|while|when|in)\b"
    r"|(?:traceback|failed|failure|invalid|could not|cannot|can't|unable to|no such)\b)",
    re.IGNORECASE,
)
"""The beginning of a result that reports a failure, also in brackets or a tag."""
_REFUSED = re.compile(
    r"\binvalid (?:\w+ )?(?:arguments?|parameters?|params|inputs?|json)\b|\bvalidation (?:error|failed)"
    r"|\b(?:missing|must have|lacks) (?:\w+ ){0,3}(?:argument|parameter|propertie|property|field|key)s?\b"
    r"|\brequired (?:property|argument|parameter|field)\b|\bunexpected keyword argument\b"
    r"|\b(?:tool|function)\b.{0,60}\b(?:does not exist|not found|is not (?:a valid|available|known))\b"
    r"|\bis not a (?:valid|known) (?:tool|function)\b|\bunknown (?:tool|function)\b",
    re.IGNORECASE,
)
"""The words in which a tool, or the client in its place, refuses its arguments."""
_OBSERVED = re.compile(r"(?:Call id: \S+\s+)?Observation:\s*")
"""The beginning of results that clients send under the person's name."""
_BAD_STATES = ("error", "failed", "failure")


def without_answered_calls(response: Message, next_state: Sequence[Message]) -> Message:
    """The response without the calls whose results are in the next state and report no failure."""
    results = _results(response.tool_calls, list(_returned(next_state)))
    left = tuple(
        call for call, said in zip(response.tool_calls, results, strict=True) if said is None or failed(said)
    )
    return replace(response, tool_calls=left)


def failed(result: str) -> bool:
    """Whether a result reports at its beginning that the call failed or was refused."""
    text = result.strip()
    if text.startswith("{") and (told := marked(text)) is not None:
        return told
    opening = text[:OPENING]
    return _FAILED.match(opening) is not None or _REFUSED.search(opening) is not None


def marked(text: str) -> bool | None:
    """Whether a JSON object marks itself as a failure; None if the text is none."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if told.get("success") is False or told.get("ok") is False:
        return True
    if told.get("isError") is True or told.get("is_error") is True:
        return True
    return bool(told.get("error") or told.get("errors")) or told.get("status") in _BAD_STATES


def _returned(next_state: Sequence[Message]) -> Iterator[Message]:
    for message in next_state:
        if message.role == "tool":
            yield message
        elif message.role == "user" and (found := _OBSERVED.match(message.content or "")):
            yield Message(role="tool", content=(message.content or "")[found.end() :])


def _results(calls: Sequence[ToolCall], returned: list[Message]) -> list[str | None]:
    """The result of each call, by its id; those under other ids belong to the other calls, in order."""
    named = {plain_id(one.tool_call_id): one.content or "" for one in returned if one.tool_call_id}
    ours = {plain_id(call.id) for call in calls}
    others = iter([one.content or "" for one in returned if plain_id(one.tool_call_id or "") not in ours])
    return [named[plain_id(call.id)] if plain_id(call.id) in named else next(others, None) for call in calls]
