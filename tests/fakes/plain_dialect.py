"""A second dialect, to prove the seam: the client sends a text, and is answered in lines of text."""

from __future__ import annotations

from typing import Any

from afterwit.dialects.dialect import (
    ChoiceDelta,
    ChoiceEnd,
    Dialect,
    Encoder,
    ResponseHead,
    TextDelta,
    TokenCount,
    Usage,
)
from afterwit.dialects.fields import as_object, as_text, flag, text
from afterwit.dialects.request import Field, ModelRequest, RequestLimits
from afterwit.errors import RequestError
from afterwit.turn import Conversation, Message, Sampling


def parse(body: Any, limits: RequestLimits) -> ModelRequest:
    data = as_object(body, "the body")
    message = Message(role="user", content=as_text(data.get("prompt"), "prompt"))
    stop = text(data, "until")
    sampling = Sampling(max_tokens=limits.default_max_tokens, stop=() if stop is None else (stop,))
    return ModelRequest(
        model=text(data, "model"),
        conversation=Conversation(messages=(message,)),
        sampling=sampling,
        stream=flag(data, "stream"),
    )


class PlainEncoder:
    """Needs the prompt's tokens before the first text, and the stop string after the last."""

    content_type = "text/plain"
    heartbeat = b"...\n"

    def __init__(self, request: ModelRequest, head: ResponseHead) -> None:
        self._begun = f"read {head.prompt_tokens}\n"
        self._stream = request.stream
        self._held = ""

    def begin(self, version: int) -> bytes:
        begun, self._begun = self._begun, ""
        return self._sent(begun)

    def delta(self, delta: ChoiceDelta) -> bytes:
        text = "".join(event.text for event in delta.events if isinstance(event, TextDelta))
        return self.begin(delta.version) + self._sent(text)

    def end_choice(self, end: ChoiceEnd) -> bytes:
        return self._sent(f"\n{end.finish} {end.stop}\n")

    def end(self, usage: Usage, version: int) -> bytes:
        return (self._held + f"wrote {usage.completion}\n").encode()

    def fail(self, error: RequestError) -> bytes:
        return f"failed {error.code}\n".encode()

    def _sent(self, text: str) -> bytes:
        if self._stream:
            return text.encode()
        self._held += text
        return b""


def encoder(request: ModelRequest, head: ResponseHead) -> Encoder:
    return PlainEncoder(request, head)


def error_body(error: RequestError) -> dict[str, Any]:
    field = "prompt" if error.param == Field.MESSAGES else error.param
    return {"wrong": error.code, "field": field}


PLAIN = Dialect(
    name="plain",
    path="/v1/plain",
    parse=parse,
    encoder=encoder,
    error_body=error_body,
    extra_routes=(TokenCount(path="/v1/plain/tokens", parse=parse, body=lambda tokens: {"tokens": tokens}),),
    request_id_header="plain-id",
)
