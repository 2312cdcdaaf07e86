"""Sampling settings that all dialects have, read from a request's JSON. Each raises RequestError 400."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.wire.fields import as_list, as_text, integer, number, wrong_value
from afterwit.wire.request import RequestLimits

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
