"""The sampling parameters of a request, in all dialects. Malformed ones raise RequestError 400."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from afterwit.dialects.fields import (
    as_list,
    as_number,
    as_object,
    as_text,
    flag,
    integer,
    number,
    storable,
    wrong_type,
    wrong_value,
)
from afterwit.dialects.request import RequestLimits
from afterwit.turn import Sampling

LARGEST = 2**31 - 1
"""The largest token count or token id that every engine can hold."""

WEAKEST_REPETITION_PENALTY = 0.01
"""Logits are divided by it: smaller ones leave the range of half precision."""

RESERVED_ARGUMENTS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "strftime_now"})
"""Template variables that the renderer sets itself."""


def parse_sampling(
    data: Mapping[str, Any], limits: RequestLimits, *, lengths: Sequence[str], stops: str = "stop"
) -> Sampling:
    """The request's sampling parameters.

    `lengths` are the fields that limit the tokens of the response: the first one that is set counts. `stops`
    is the field of the stop strings.
    """
    found = (integer(data, name, low=1, high=LARGEST) for name in lengths)
    asked = next((limit for limit in list(found) if limit is not None), None)
    top_p = number(data, "top_p", 1.0, low=0.0, high=1.0)
    if top_p == 0.0:
        raise wrong_value("top_p", "must be more than 0")
    return Sampling(
        max_tokens=asked or limits.default_max_tokens,
        limit_asked=asked is not None and asked < limits.default_max_tokens,
        temperature=number(data, "temperature", 1.0, low=0.0, high=2.0),
        top_p=top_p,
        top_k=max(integer(data, "top_k", low=-1, high=LARGEST) or 0, 0),  # some clients send -1 for all
        min_p=number(data, "min_p", 0.0, low=0.0, high=1.0),
        seed=integer(data, "seed", low=-(2**63), high=2**63 - 1),
        stop=_stops(data.get(stops), stops, limits),
        stop_ids=_stop_ids(data.get("stop_token_ids"), limits.max_stops),
        presence_penalty=number(data, "presence_penalty", 0.0, low=-2.0, high=2.0),
        frequency_penalty=number(data, "frequency_penalty", 0.0, low=-2.0, high=2.0),
        repetition_penalty=number(data, "repetition_penalty", 1.0, low=WEAKEST_REPETITION_PENALTY, high=10.0),
        logit_bias=_biases(data.get("logit_bias"), limits.max_biases),
        ignore_eos=flag(data, "ignore_eos"),
    )


def _stops(value: Any, param: str, limits: RequestLimits) -> tuple[str, ...]:
    """A string or a list of strings, without empty ones."""
    listed = [] if value is None else [value] if isinstance(value, str) else as_list(value, param)
    if len(listed) > limits.max_stops:
        raise wrong_value(param, f"holds {len(listed)} strings, more than {limits.max_stops}")
    stops = [as_text(stop, param) for stop in listed]
    longest = max(map(len, stops), default=0)
    if longest > limits.max_stop_length:
        message = f"holds a string of {longest} characters, more than {limits.max_stop_length}"
        raise wrong_value(param, message)
    return tuple(filter(None, stops))


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


def parse_template_args(value: Any) -> Mapping[str, Any]:
    """The client's template variables. Raises RequestError 400 for those that the renderer sets."""
    arguments = {} if value is None else as_object(value, "chat_template_kwargs")
    taken = sorted(RESERVED_ARGUMENTS.intersection(arguments))
    if taken:
        raise wrong_value("chat_template_kwargs", f"may not set {taken[0]}")
    storable(arguments, "chat_template_kwargs")
    return arguments
