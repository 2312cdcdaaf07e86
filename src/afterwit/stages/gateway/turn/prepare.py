"""From a request's JSON to prompt ids: parsing, rendering, and whether it fits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from afterwit.core.errors import RequestError
from afterwit.core.message import Conversation
from afterwit.core.turn import Sampling
from afterwit.wire.model_text.render import Renderer
from afterwit.wire.model_text.tool_calls import Style, forced_opening, opens_thought, style_of
from afterwit.wire.openai_chat.request import ChatRequest, Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A request as the engine and the record take it."""

    conversation: Conversation
    """What was rendered: without tools where none may be called, the date pinned."""
    ids: tuple[int, ...]
    sampling: Sampling
    """With `max_tokens` cut to what fits the context."""
    style: Style
    thinking: bool
    """The response begins inside a thought."""
    forced: tuple[int, ...]
    """Ids that make the response call a tool; empty where it is free."""


def check_model(request: ChatRequest, names: Collection[str]) -> None:
    """Raise 400 without a model, 404 for one that is not served here."""
    if not request.model:
        raise RequestError(400, "missing_model", "Name a model.", param="model")
    if request.model not in names:
        known = ", ".join(names)
        raise RequestError(
            404, "model_not_found", f"The model {request.model!r} is not served here: {known}.", param="model"
        )


def check_supported(request: ChatRequest, vocabulary: int) -> None:
    """Raise 400 for what was asked for and cannot be given."""
    named = {
        "logit_bias": [id for id, _ in request.sampling.logit_bias],
        "stop_token_ids": request.sampling.stop_ids,
    }
    for param, ids in named.items():
        if max(ids, default=0) >= vocabulary:
            raise RequestError(
                400, "invalid_value", f"{param} names token {max(ids)} of {vocabulary}.", param=param
            )
    if request.top_logprobs:
        raise RequestError(
            400,
            "unsupported_parameter",
            "Only the sampled token's log-prob is served: logprobs without top_logprobs.",
            param="top_logprobs",
        )


def prepare(request: ChatRequest, renderer: Renderer, *, context_length: int, now: float) -> Prompt:
    """Render a request. Raises 400 where the template refuses it or it does not fit."""
    conversation = renderer.dated(_offered(request), now)
    text = renderer.text(conversation)
    ids = renderer.encode(text)
    style = style_of(renderer.template_source) if conversation.tools else Style.NONE
    thinking = opens_thought(text)
    forced = renderer.encode(_opening(request, style, thinking=thinking))
    return Prompt(
        conversation=conversation,
        ids=ids,
        sampling=fitted(request.sampling, len(ids), len(forced), context_length),
        style=style,
        thinking=thinking,
        forced=forced,
    )


def fitted(sampling: Sampling, prompt: int, forced: int, context_length: int) -> Sampling:
    """The sampling with `max_tokens` cut to the room left. Raises 400 where nothing could be sampled."""
    room = context_length - prompt
    if room <= forced:
        raise RequestError(
            400,
            "context_length_exceeded",
            f"This model's maximum context length is {context_length} tokens. "
            f"However, your messages resulted in {prompt} tokens.",
            param="messages",
        )
    return replace(sampling, max_tokens=max(min(sampling.max_tokens, room), forced + 1))


def _offered(request: ChatRequest) -> Conversation:
    if request.tool_choice is Choice.NONE:
        return replace(request.conversation, tools=())
    return request.conversation


def _opening(request: ChatRequest, style: Style, *, thinking: bool) -> str:
    if request.tool_choice is not Choice.REQUIRED:
        return ""
    opening = forced_opening(style, request.tool_named, thinking=thinking)
    if not opening:
        raise RequestError(
            400, "unsupported_tool_choice", "This model's template knows no tool calls.", param="tool_choice"
        )
    return opening
