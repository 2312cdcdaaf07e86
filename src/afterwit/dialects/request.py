"""A client's request in the common form that every dialect is parsed into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from afterwit.message import Conversation
from afterwit.turn import Sampling


class Field(StrEnum):
    """A field of a request, as a RequestError names it in `param`.

    Only the parser knows the dialect. Later code names a Field, which the dialect's error body translates.
    """

    MODEL = "model"
    MESSAGES = "messages"
    TOOL_CHOICE = "tool_choice"
    LOGIT_BIAS = "logit_bias"
    STOP_IDS = "stop_ids"
    FORMAT = "response_format"
    TOP_LOGPROBS = "top_logprobs"


class ToolChoice(StrEnum):
    """Whether the response calls a tool."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonForm:
    """The form that the content of a response must have."""

    schema: str
    """A JSON schema, as JSON text."""
    strict: bool
    """Refuse a schema that cannot be enforced in full, instead of enforcing what is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """How much one request may ask for."""

    max_choices: int
    default_max_tokens: int
    """Tokens of a response when the client names no limit."""
    max_messages: int = 4096
    max_calls: int = 16_384
    """Tool calls of all messages together. A call costs the template much more than a character."""
    max_parts: int = 32_768
    """Parts of the content of all messages together, if a dialect reads each by itself."""
    max_tools: int = 4096
    max_stops: int = 32
    max_stop_length: int = 1024
    """Characters of one stop string."""
    max_biases: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request to the model."""

    model: str | None
    conversation: Conversation
    sampling: Sampling
    """As the client asked; `max_tokens` is not yet cut to what fits the context."""
    choices: int = 1
    """How many responses to sample."""
    stream: bool = False
    include_usage: bool = False
    """The stream should end with its token counts. A dialect that always sends them ignores this."""
    tool_choice: ToolChoice = ToolChoice.AUTO
    required_tool: str | None = None
    """The tool that must be called; None: any."""
    parallel_calls: bool = True
    show_reasoning: bool = True
    """Send the reasoning to the client. Only dialects in which clients request it read this."""
    form: JsonForm | None = None
    """The form of the content; None: free text. It does not apply to reasoning and tool calls."""
    prefill: str = ""
    """The beginning of the content: the response continues it without repeating it."""
    logprobs: bool = False
    """Return the log-prob of each sampled token."""
    top_logprobs: int = 0
    """Return this many of the most likely tokens with each, if log-probs are returned."""
    follows: str | None = None
    """The previous turn, if the client names it."""
    echoed: Mapping[str, Any] = field(default_factory=dict)
    """The fields that the response repeats. Only the dialect's own encoder reads this."""
