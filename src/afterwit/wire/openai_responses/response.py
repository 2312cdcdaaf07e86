"""Responses as JSON objects: a response, a stored one, and a count of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from afterwit.core.turn import Finish, Turn
from afterwit.wire.openai_responses.item_ids import RESPONSE_PREFIX
from afterwit.wire.openai_responses.output import message_output
from afterwit.wire.response import Usage

JsonObject = dict[str, Any]

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "background": False,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }
)
"""Fields of a request that its response repeats, with what they are if the client sends none."""

STATUS = {Finish.LENGTH: "incomplete", Finish.CLIENT_LEFT: "cancelled"}
"""Of a response that did not end by itself; any other is completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What every state of one response repeats."""

    turn: str
    created: int
    """Whole seconds since the epoch."""
    model: str
    echoed: Mapping[str, Any]

    def object(
        self,
        status: str,
        output: Sequence[JsonObject] = (),
        *,
        usage: Usage | None = None,
        error: JsonObject | None = None,
    ) -> JsonObject:
        """The response in one state."""
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": RESPONSE_PREFIX + self.turn,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": error,
            "incomplete_details": reason,
            "model": self.model,
            "output": list(output),
            "usage": None if usage is None else _usage(usage),
            **self.echoed,
        }


def status_of(finish: Finish) -> str:
    """The state in which a response ended."""
    return STATUS.get(finish, "completed")


def stored_body(turn: Turn) -> JsonObject:
    """A response as the store has it. Of its request only what was sampled with is known."""
    sampling = turn.sampling
    known = {
        "max_output_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "tools": [{"type": "function", **tool["function"]} for tool in turn.conversation.tools],
    }
    envelope = Envelope(
        turn=turn.id, created=int(turn.created), model=turn.model, echoed={**DEFAULTS, **known}
    )
    usage = Usage(prompt=len(turn.prompt_ids), completion=len(turn.sampled.ids))
    return envelope.object(
        status_of(turn.finish), message_output(turn.id, turn.message, turn.finish), usage=usage
    )


def count_body(tokens: int) -> JsonObject:
    """The answer to a count of a request's tokens."""
    return {"object": "response.input_tokens", "input_tokens": tokens}


def _usage(usage: Usage) -> JsonObject:
    """Tokens from a cache, and those of the reasoning, are not counted apart."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }
