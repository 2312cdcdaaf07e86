"""What a client asks the model for: the common form that every dialect is parsed into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from afterwit.message import Conversation
from afterwit.turn import Sampling


class Field(StrEnum):
    """A field of a request, as a RequestError names it in `param`.

    Code behind the parser does not know the dialect. It names a Field, and the dialect's error body says how
    its clients call that field.
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
    """Refuse a schema that cannot be followed in full, instead of following it as far as possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """How much one request may ask for."""

    max_choices: int
    default_max_tokens: int
    """Tokens of a response when the client names no limit."""
    max_messages: int = 4096
    max_calls: int = 16_384
    """Tool calls of all messages together. Each costs the template much more than a character does."""
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
    """Send the reasoning to the client. Only a dialect in which clients ask for it reads this."""
    form: JsonForm | None = None
    """What the content must look like; None: it is free. Reasoning and tool calls always are."""
    prefill: str = ""
    """How the content begins: the response goes on from here, and does not repeat it."""
    logprobs: bool = False
    """Return the log-prob of each sampled token."""
    top_logprobs: int = 0
    """Return this many of the most likely tokens with each, if log-probs are returned."""
    follows: str | None = None
    """The turn that the client names as the one before; None if it names none."""
    echoed: Mapping[str, Any] = field(default_factory=dict)
    """What the response repeats of its request. Only the dialect's own encoder reads this."""
