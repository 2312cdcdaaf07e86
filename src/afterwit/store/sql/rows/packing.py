"""Packed arrays: ids as int32, log-probs as float32, versions as runs, flags as bytes. Little-endian."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby


def pack_ids(ids: Sequence[int]) -> bytes:
    """4 bytes per id. Raises struct.error past 32 bits."""
    return _pack("i", ids)


def _pack(form: str, values: Sequence[float]) -> bytes:
    """By a Struct's own method: it takes a tuple as it is, where `struct.pack` has it copied."""
    return struct.Struct(f"<{len(values)}{form}").pack(*values)


def unpack_ids(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}i", data)


def pack_floats(values: Sequence[float]) -> bytes:
    """4 bytes per value: rounded to float32, which is what engines report."""
    return _pack("f", values)


def unpack_floats(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def pack_runs(values: Sequence[int]) -> bytes:
    """(value, length) pairs: one pair for a response that one version sampled."""
    if values and values.count(values[0]) == len(values):
        return pack_ids((values[0], len(values)))
    return pack_ids([number for value, run in groupby(values) for number in (value, len(tuple(run)))])


def unpack_runs(data: bytes) -> tuple[int, ...]:
    pairs = unpack_ids(data)
    return tuple(value for value, length in zip(pairs[::2], pairs[1::2], strict=True) for _ in range(length))


def pack_flags(flags: Sequence[bool]) -> bytes:
    """A byte per flag."""
    return bytes(flags)


def unpack_flags(data: bytes) -> tuple[bool, ...]:
    return tuple(map(bool, data))
