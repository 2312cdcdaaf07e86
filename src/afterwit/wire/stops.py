"""Stop strings of a request."""

from __future__ import annotations

from typing import Any

from afterwit.wire.fields import as_list, as_text, wrong_value
from afterwit.wire.request import RequestLimits


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
