"""OpenAI chat's answers: the chunks of a stream, and the body that says the same at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from afterwit.core.ids import response_id
from afterwit.core.message import Message
from afterwit.wire.model_text.tool_calls import Call, Content, Event, Thought

Delta = dict[str, Any]
"""What a chunk adds to a message."""

PIECE = 64
"""Characters of one piece of a tool call's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What every chunk of one response repeats."""

    turn: str
    """The first choice's turn: the response id names it."""
    created: int
    """Whole seconds since the epoch."""
    model: str
    """As the client asked for it."""
    counts: bool = False
    """The client asked for usage: every chunk has the field, null until the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the engine counted them."""

    prompt: int
    completion: int

    def to_dict(self) -> dict[str, int]:
        total = self.prompt + self.completion
        return {"prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": total}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """One sampled token's log-prob, as a client sees it."""

    text: str
    logprob: float

    def to_dict(self) -> dict[str, Any]:
        data = list(self.text.encode())
        return {"token": self.text, "logprob": self.logprob, "bytes": data, "top_logprobs": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One whole choice of a body."""

    index: int
    message: Message
    finish: str
    logprobs: tuple[TokenLogprob, ...] | None = None


def role_delta() -> Delta:
    """A stream's first delta."""
    return {"role": "assistant", "content": ""}


def deltas(event: Event, call_id: Callable[[int], str]) -> Iterator[Delta]:
    """What an event adds to the message. A call's id and name are said once, then its arguments in pieces."""
    match event:
        case Content(text=text):
            yield {"content": text}
        case Thought(text=text):
            yield {"reasoning_content": text}
        case Call(index=index, name=name, arguments=arguments):
            function = {"name": name, "arguments": ""}
            yield _call({"index": index, "id": call_id(index), "type": "function", "function": function})
            for start in range(0, len(arguments), PIECE):
                yield _call({"index": index, "function": {"arguments": arguments[start : start + PIECE]}})


def chunk(
    head: Head,
    version: int,
    index: int,
    delta: Delta,
    *,
    finish: str | None = None,
    logprobs: Sequence[TokenLogprob] | None = None,
) -> dict[str, Any]:
    """One chunk of choice `index`; `version` is the weights' that sampled the latest token."""
    choice = {
        "index": index,
        "delta": delta,
        "logprobs": _logprobs(logprobs or None),
        "finish_reason": finish,
    }
    return _envelope(head, version, "chat.completion.chunk", [choice], None)


def usage_chunk(head: Head, version: int, usage: Usage) -> dict[str, Any]:
    """The last chunk of a stream whose client asked for usage: no choices."""
    return _envelope(head, version, "chat.completion.chunk", [], usage)


def body(head: Head, version: int, choices: Iterable[Choice], usage: Usage) -> dict[str, Any]:
    """The answer to a request that is not streamed."""
    return _envelope(head, version, "chat.completion", [_choice(choice) for choice in choices], usage)


def _envelope(
    head: Head, version: int, kind: str, choices: list[dict[str, Any]], usage: Usage | None
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": response_id(head.turn),
        "object": kind,
        "created": head.created,
        "model": head.model,
        "system_fingerprint": f"v{version}",
        "choices": choices,
    }
    if usage is not None:
        data["usage"] = usage.to_dict()
    elif head.counts:
        data["usage"] = None
    return data


def _call(call: dict[str, Any]) -> Delta:
    return {"tool_calls": [call]}


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "index": choice.index,
        "message": choice.message.to_dict(),
        "logprobs": _logprobs(choice.logprobs),
        "finish_reason": choice.finish,
    }


def _logprobs(tokens: Sequence[TokenLogprob] | None) -> dict[str, Any] | None:
    return None if tokens is None else {"content": [token.to_dict() for token in tokens], "refusal": None}
