"""`POST /v1/plain`: a client sends {"prompt": "..."} and reads lines of text."""

from __future__ import annotations

from typing import Any

from afterwit.api.dialects import (
    ChoiceDelta,
    ChoiceEnd,
    Dialect,
    ModelRequest,
    RequestLimits,
    ResponseHead,
    TextDelta,
    Usage,
    as_object,
    as_text,
)
from afterwit.api.turns import Conversation, Message, RequestError, Sampling


def parse(body: Any, limits: RequestLimits) -> ModelRequest:
    """Raises RequestError for what is malformed."""
    message = Message(role="user", content=as_text(as_object(body, "the body").get("prompt"), "prompt"))
    sampling = Sampling(max_tokens=limits.default_max_tokens)
    return ModelRequest(
        model=None, conversation=Conversation(messages=(message,)), sampling=sampling, stream=True
    )


class LineEncoder:
    """Each method returns the bytes to send now."""

    content_type = "text/plain"
    heartbeat = b"...\n"

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None: ...

    def begin(self, version: int) -> bytes:
        return b""

    def delta(self, delta: ChoiceDelta) -> bytes:
        return "".join(event.text for event in delta.events if isinstance(event, TextDelta)).encode()

    def end_choice(self, end: ChoiceEnd) -> bytes:
        return b"\n"

    def end(self, usage: Usage, version: int) -> bytes:
        return b""

    def fail(self, error: RequestError) -> bytes:
        return f"error: {error.code}\n".encode()


DIALECT = Dialect(
    name="plain",
    path="/v1/plain",
    parse=parse,
    encoder=LineEncoder,
    error_body=lambda error: {"error": error.code},
)
