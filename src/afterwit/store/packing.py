"""Packed arrays: ids as int32, log-probs as float32, versions as runs, flags as bytes. Little-endian."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import groupby

SWAP = sys.byteorder == "big"


def _bytes(values: array) -> bytes:  # type: ignore[type-arg]
    if SWAP:
        values.byteswap()
    return values.tobytes()


def _array(code: str, data: bytes) -> array:  # type: ignore[type-arg]
    values = array(code)
    values.frombytes(data)
    if SWAP:
        values.byteswap()
    return values


def pack_ids(ids: Sequence[int]) -> bytes:
    """4 bytes per id. Raises OverflowError past 32 bits."""
    return _bytes(array("i", ids))


def unpack_ids(data: bytes) -> tuple[int, ...]:
    return tuple(_array("i", data))


def pack_floats(values: Sequence[float]) -> bytes:
    """4 bytes per value: rounded to float32, which is what engines report."""
    return _bytes(array("f", values))


def unpack_floats(data: bytes) -> tuple[float, ...]:
    return tuple(_array("f", data))


def pack_runs(values: Sequence[int]) -> bytes:
    """(value, length) pairs: one pair for a response that one version sampled."""
    pairs: list[int] = []
    for value, run in groupby(values):
        pairs += (value, sum(1 for _ in run))
    return pack_ids(pairs)


def unpack_runs(data: bytes) -> tuple[int, ...]:
    pairs = unpack_ids(data)
    return tuple(value for value, length in zip(pairs[::2], pairs[1::2], strict=True) for _ in range(length))


def pack_flags(flags: Sequence[bool]) -> bytes:
    """A byte per flag."""
    return bytes(flags)


def unpack_flags(data: bytes) -> tuple[bool, ...]:
    return tuple(map(bool, data))
