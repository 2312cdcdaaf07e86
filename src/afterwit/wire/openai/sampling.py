"""Sampling settings of a request, with the extensions that vLLM and SGLang share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from afterwit.core.turn import Sampling
from afterwit.wire.fields import (
    as_list,
    as_number,
    as_object,
    flag,
    integer,
    number,
    wrong_type,
    wrong_value,
)
from afterwit.wire.request import RequestLimits
from afterwit.wire.sampling_fields import (
    LARGEST,
    limit_fields,
    parse_max_tokens,
    parse_stops,
    parse_temperature,
    parse_top_k,
    parse_top_p,
)

WEAKEST_REPETITION_PENALTY = 0.01
"""Logits are divided by it: smaller ones leave the range of half precision."""


def parse_sampling(data: Mapping[str, Any], limits: RequestLimits, *, lengths: Sequence[str]) -> Sampling:
    """The request's sampling. Raises RequestError 400 for a value that no engine could sample with.

    `lengths` are the fields that limit the tokens of the response; the first one that is set counts.
    """
    asked = [parse_max_tokens(data, name) for name in lengths]
    return Sampling(
        **limit_fields(next((limit for limit in asked if limit is not None), None), limits),
        temperature=parse_temperature(data),
        top_p=parse_top_p(data),
        top_k=parse_top_k(data),
        min_p=number(data, "min_p", 0.0, low=0.0, high=1.0),
        seed=integer(data, "seed", low=-(2**63), high=2**63 - 1),
        stop=parse_stops(data.get("stop"), "stop", limits),
        stop_ids=_stop_ids(data.get("stop_token_ids"), limits.max_stops),
        presence_penalty=number(data, "presence_penalty", 0.0, low=-2.0, high=2.0),
        frequency_penalty=number(data, "frequency_penalty", 0.0, low=-2.0, high=2.0),
        repetition_penalty=number(data, "repetition_penalty", 1.0, low=WEAKEST_REPETITION_PENALTY, high=10.0),
        logit_bias=_biases(data.get("logit_bias"), limits.max_biases),
        ignore_eos=flag(data, "ignore_eos"),
    )


def _stop_ids(value: Any, most: int) -> tuple[int, ...]:
    ids = [] if value is None else as_list(value, "stop_token_ids")
    if len(ids) > most:
        raise wrong_value("stop_token_ids", f"holds {len(ids)} ids, more than {most}")
    return tuple(_token_id(index, "stop_token_ids") for index in ids)


def _biases(value: Any, most: int) -> tuple[tuple[int, float], ...]:
    biases = {} if value is None else as_object(value, "logit_bias")
    if len(biases) > most:
        raise wrong_value("logit_bias", f"holds {len(biases)} tokens, more than {most}")
    return tuple(
        (_token_id(index, "logit_bias"), as_number(bias, "logit_bias", low=-100.0, high=100.0))
        for index, bias in biases.items()
    )


def _token_id(value: Any, param: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(param, "token ids", value)
    if not 0 <= value <= LARGEST:
        raise wrong_value(param, f"names token {value}, which no vocabulary has")
    return value
