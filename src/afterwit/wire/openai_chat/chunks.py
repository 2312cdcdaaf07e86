"""OpenAI chat's responses as JSON objects: the chunks of a stream, and the whole body."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from afterwit.wire.openai import logprob_objects
from afterwit.wire.response import (
    CallDelta,
    ChoiceEnd,
    ParsedCall,
    ReasoningDelta,
    ResponseHead,
    SentCalls,
    TextDelta,
    TokenLogprob,
    Usage,
)

JsonObject = dict[str, Any]

ID_PREFIX = "chatcmpl-"
PIECE = 64
"""Characters of one piece of a tool call's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What every object of one response repeats."""

    head: ResponseHead
    null_usage: bool = False
    """Every chunk has a `usage` field, null until the last: the client asked for usage in its stream."""

    def body(self, version: int, choices: Sequence[JsonObject], usage: Usage) -> JsonObject:
        """The whole response."""
        return self._object("chat.completion", version, choices, usage)

    def chunk(self, version: int, choices: Sequence[JsonObject], usage: Usage | None = None) -> JsonObject:
        """One object of a stream."""
        return self._object("chat.completion.chunk", version, choices, usage)

    def _object(
        self, kind: str, version: int, choices: Sequence[JsonObject], usage: Usage | None
    ) -> JsonObject:
        data: JsonObject = {
            "id": ID_PREFIX + self.head.turn,
            "object": kind,
            "created": self.head.created,
            "model": self.head.model,
            "system_fingerprint": f"v{version}",
            "choices": choices,
        }
        if usage is not None:
            data["usage"] = _usage(usage)
        elif self.null_usage:
            data["usage"] = None
        return data


def delta_choice(
    choice: int, delta: JsonObject, *, finish: str | None = None, logprobs: Sequence[TokenLogprob] = ()
) -> JsonObject:
    """A chunk's only choice."""
    return {
        "index": choice,
        "delta": delta,
        "logprobs": _logprobs(logprobs) if logprobs else None,
        "finish_reason": finish,
    }


def whole_choice(end: ChoiceEnd, logprobs: Sequence[bytes] | None) -> JsonObject:
    """A body's choice; `logprobs`, each as JSON, is None unless the client asked for them."""
    content = None if logprobs is None else orjson.Fragment(b"[" + b",".join(logprobs) + b"]")
    return {
        "index": end.choice,
        "message": end.message.to_dict(),
        "logprobs": None if content is None else {"content": content, "refusal": None},
        "finish_reason": end.finish,
    }


def role_delta() -> JsonObject:
    """The first delta of a choice."""
    return {"role": "assistant", "content": ""}


def text_delta(event: TextDelta | ReasoningDelta) -> JsonObject:
    """What text adds to the message."""
    return {"content" if isinstance(event, TextDelta) else "reasoning_content": event.text}


def call_deltas(event: CallDelta | ParsedCall, call_id: str, sent: SentCalls) -> Iterator[JsonObject]:
    """What a call adds to the message: its id and name once, and its arguments in pieces."""
    begins, arguments = sent.add(event)
    if begins:
        function = {"name": event.name, "arguments": ""}
        yield _call({"index": event.index, "id": call_id, "type": "function", "function": function})
    for start in range(0, len(arguments), PIECE):
        yield _call({"index": event.index, "function": {"arguments": arguments[start : start + PIECE]}})


def _call(call: JsonObject) -> JsonObject:
    return {"tool_calls": [call]}


def _usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    }


def _logprobs(tokens: Sequence[TokenLogprob]) -> JsonObject:
    return {"content": logprob_objects(tokens), "refusal": None}
