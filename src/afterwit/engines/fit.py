"""Whether a request fits a model. Every engine asks this before it samples."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.core.errors import ContextExceeded, RequestRefused
from afterwit.engines.port import Capabilities, Facts, Generate, Score


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


def check_scores(rows: Sequence[Score], top: int, facts: Facts, capabilities: Capabilities) -> None:
    """Raise RequestRefused if a row does not fit the model, or the engine does not score like this."""
    if top > capabilities.scored_ids:
        raise RequestRefused(
            f"This engine scores {capabilities.scored_ids} ids a place, not {top}.", field="top"
        )
    for row in rows:
        if len(row) > facts.context_length:
            raise ContextExceeded(
                f"Prompt and response have {len(row)} tokens; the context {facts.context_length}.",
                field="prompt",
            )
        if row.tau != 1.0 and not capabilities.scored_tau:
            raise RequestRefused(f"This engine scores at temperature 1 alone, not {row.tau:g}.", field="tau")
        _check_ids("a row", (*row.prompt_ids, *row.response_ids), facts.vocabulary)


def _check_ids(field: str, ids: tuple[int, ...], vocabulary: int) -> None:
    if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
        raise RequestRefused(
            f"A token id of {field} is outside the model's vocabulary of {vocabulary}.", field=field
        )
