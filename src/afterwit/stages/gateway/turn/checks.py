"""Whether the served model and its engine can do what a request asks for, before anything is rendered."""

from __future__ import annotations

from collections.abc import Collection

from afterwit.core.errors import RequestError
from afterwit.core.turn import Sampling
from afterwit.engines.port import Capabilities
from afterwit.wire.fields import shown
from afterwit.wire.request import Field, ModelRequest, ToolChoice


def check_model(request: ModelRequest, names: Collection[str]) -> None:
    """Raise 400 without a model, 404 for one that is not served here."""
    if not request.model:
        raise RequestError(400, "missing_model", "Name a model.", param=Field.MODEL)
    if request.model not in names:
        message = f"The model {shown(request.model)} is not served here: {', '.join(names)}."
        raise RequestError(404, "model_not_found", message, param=Field.MODEL)


def check_token_ids(sampling: Sampling, vocabulary: int) -> None:
    """Raise 400 for a token id that the model does not have."""
    named = {Field.LOGIT_BIAS: [id for id, _ in sampling.logit_bias], Field.STOP_IDS: sampling.stop_ids}
    for field, ids in named.items():
        if max(ids, default=0) >= vocabulary:
            message = f"The model has no token {max(ids)}: its vocabulary has {vocabulary}."
            raise RequestError(400, "invalid_value", message, param=field)


def check_capabilities(request: ModelRequest, can: Capabilities) -> None:
    """Raise 400 for what the engine cannot do, and for wishes that exclude each other."""
    must_call = request.tool_choice is ToolChoice.REQUIRED
    if must_call and not can.forced_prefix:
        raise _unsupported("tool_choice", "This server's engine cannot force a tool call.", Field.TOOL_CHOICE)
    if request.form is not None and not can.constraint:
        message = f"This server's engine cannot force a form of text{_remedy(can, 'constraint')}."
        raise _unsupported("response_format", message, Field.FORMAT)
    if request.logprobs and request.top_logprobs > can.top_logprobs:
        message = (
            f"This server's engine tells at most {can.top_logprobs} alternatives of a token"
            f"{_remedy(can, 'top_logprobs')}."
        )
        raise _unsupported("parameter", message, Field.TOP_LOGPROBS)
    if request.prefill:
        _check_prefill(request, can, must_call=must_call)


def _check_prefill(request: ModelRequest, can: Capabilities, *, must_call: bool) -> None:
    if not can.forced_prefix:
        message = (
            "This server's engine cannot go on from a message of the assistant: end with one of the user."
        )
        raise _unsupported("prefill", message, Field.MESSAGES)
    if must_call or request.form is not None:
        message = "A message of the assistant that is gone on from cannot be made a tool call or a JSON text."
        raise _unsupported("prefill", message, Field.MESSAGES)


def _remedy(can: Capabilities, name: str) -> str:
    return f": {can.remedies[name]}" if name in can.remedies else ""


def _unsupported(what: str, message: str, field: Field) -> RequestError:
    return RequestError(400, f"unsupported_{what}", message, param=field)
