"""Whether a request fits a model. Every engine asks this before it samples."""

from __future__ import annotations

from afterwit.core.errors import ContextExceeded, RequestRefused
from afterwit.engines.port import Facts, Generate


def check_fits(request: Generate, facts: Facts) -> None:
    """Raise RequestRefused if the request does not fit the model."""
    prompt, sampling = request.prompt_ids, request.sampling
    if not prompt:
        raise RequestRefused("The prompt has no tokens.", field="prompt")
    if len(prompt) >= facts.context_length:
        raise ContextExceeded(
            f"The prompt has {len(prompt)} tokens; context and answer share {facts.context_length}.",
            field="prompt",
        )
    if sampling.max_tokens < 1:
        raise RequestRefused(f"max_tokens is {sampling.max_tokens}.", field="max_tokens")
    _check_ids("prompt", (*prompt, *request.forced_prefix), facts.vocabulary)
    _check_ids("logit_bias", tuple(token for token, _ in sampling.logit_bias), facts.vocabulary)


def _check_ids(field: str, ids: tuple[int, ...], vocabulary: int) -> None:
    if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
        raise RequestRefused(
            f"A token id of {field} is outside the model's vocabulary of {vocabulary}.", field=field
        )
