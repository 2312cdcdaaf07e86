"""Sampling settings as SGLang takes them."""

from __future__ import annotations

from typing import Any

from afterwit.core.turn import Sampling
from afterwit.engines.server.server import Ask


def is_cut_off(sampling: Sampling) -> bool:
    """Whether ids were cut off before sampling: the server gives log-probs before that, if not asked."""
    return sampling.truncated and not sampling.greedy


def params_of(ask: Ask, own: frozenset[int]) -> dict[str, Any]:
    """Text is made here, not there; so are stops that the server would ignore with its own end ids."""
    sampling, ends, greedy = ask.sampling, ask.end_ids, ask.sampling.greedy
    params: dict[str, Any] = {
        "max_new_tokens": sampling.max_tokens,
        "temperature": 0.0 if greedy else sampling.temperature,
        "top_p": 1.0 if greedy else sampling.top_p,
        "top_k": -1 if greedy or sampling.top_k == 0 else sampling.top_k,
        "min_p": 0.0 if greedy else sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "stop_token_ids": sorted(ends),
        "ignore_eos": not own <= ends,
    }
    if ask.schema is not None:
        params["json_schema"] = ask.schema
    if sampling.seed is not None:
        params["sampling_seed"] = sampling.seed
    if sampling.logit_bias:
        params["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    return params
