"""A line `{"messages": [...], "tools": [...]}`: a conversation in OpenAI chat's form, as for fine-tuning."""

from __future__ import annotations

import sys
from typing import Any

from afterwit.core.recording import Recording
from afterwit.wire.fields import as_object, text, wrong_value
from afterwit.wire.openai_chat.messages import parse_messages
from afterwit.wire.openai_chat.tools import parse_tools
from afterwit.wire.request import RequestLimits

MOST = sys.maxsize
LIMITS = RequestLimits(max_choices=1, default_max_tokens=1, max_messages=MOST, max_calls=MOST)
"""A file of one's own may hold conversations of any length."""


def parse_conversation(data: Any) -> Recording:
    """Every response of the conversation. Raises RequestError or ValueError that names what is wrong."""
    line = as_object(data, "the line")
    if "messages" not in line:
        raise wrong_value(
            "the line", 'has no messages; a conversation is {"messages": [...]}, as OpenAI writes it'
        )
    messages = parse_messages(line.get("messages"), LIMITS)
    said = [at for at, message in enumerate(messages) if at and message.role == "assistant"]
    return Recording(
        messages=messages,
        responses=tuple(said),
        tools=parse_tools(line.get("tools"), MOST),
        model=text(line, "model") or "unknown",
    )
