"""Sampling settings that all dialects have, read from a request's JSON. Each raises RequestError 400."""

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
"""Of a token count or token id: what every engine can hold."""


def parse_max_tokens(data: Mapping[str, Any], name: str) -> int | None:
    """The most tokens of the response; None if the client sets no limit."""
    return integer(data, name, low=1, high=LARGEST)


def limit_fields(asked: int | None, limits: RequestLimits) -> dict[str, Any]:
    """The fields of `Sampling` that say how long a response may be, if the client asks for this limit."""
    given = limits.default_max_tokens
    return {"max_tokens": asked or given, "limit_asked": asked is not None and asked < given}


def parse_temperature(data: Mapping[str, Any]) -> float:
    return number(data, "temperature", 1.0, low=0.0, high=2.0)


def parse_top_p(data: Mapping[str, Any]) -> float:
    top_p = number(data, "top_p", 1.0, low=0.0, high=1.0)
    if top_p == 0.0:
        raise wrong_value("top_p", "must be more than 0")
    return top_p


def parse_top_k(data: Mapping[str, Any]) -> int:
    """How many of the likeliest tokens may be sampled; 0: all. Clients also send -1 for all."""
    return max(integer(data, "top_k", low=-1, high=LARGEST) or 0, 0)


def parse_stops(value: Any, param: str, limits: RequestLimits) -> tuple[str, ...]:
    """A string or a list of them; null is none, and empty strings are left out."""
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else as_list(value, param)
    if len(stops) > limits.max_stops:
        raise wrong_value(param, f"holds {len(stops)} strings, more than {limits.max_stops}")
    return tuple(stop for stop in (_stop(stop, param, limits.max_stop_length) for stop in stops) if stop)


def _stop(value: Any, param: str, longest: int) -> str:
    stop = as_text(value, param)
    if len(stop) > longest:
        raise wrong_value(param, f"holds a string of {len(stop)} characters, more than {longest}")
    return stop


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


RESERVED_ARGUMENTS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "strftime_now"})
"""Template variables that the renderer sets itself."""


def parse_template_args(value: Any) -> Mapping[str, Any]:
    """The variables. Raises RequestError 400 for those that the renderer sets."""
    arguments = {} if value is None else as_object(value, "chat_template_kwargs")
    taken = sorted(RESERVED_ARGUMENTS.intersection(arguments))
    if taken:
        raise wrong_value("chat_template_kwargs", f"may not set {taken[0]}")
    storable(arguments, "chat_template_kwargs")
    return arguments
