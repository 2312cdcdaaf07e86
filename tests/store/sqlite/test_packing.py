"""Packed values come back unchanged."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.store.rows import (
    pack_floats,
    pack_ids,
    pack_runs,
    unpack_flags,
    unpack_floats,
    unpack_ids,
    unpack_runs,
)

ids = st.lists(st.integers(0, 2**31 - 1)).map(tuple)
runs = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9))).map(
    lambda pairs: tuple(value for value, length in pairs for _ in range(length))
)


@given(ids)
def test_ids_come_back(values: tuple[int, ...]) -> None:
    assert unpack_ids(pack_ids(values)) == values
    assert len(pack_ids(values)) == 4 * len(values)


@given(runs)
def test_versions_come_back_from_their_runs(values: tuple[int, ...]) -> None:
    assert unpack_runs(pack_runs(values)) == values


def test_a_response_of_one_version_takes_eight_bytes() -> None:
    assert len(pack_runs((7,) * 8192)) == 8


@given(st.lists(st.floats(width=32, allow_nan=False)).map(tuple))
def test_log_probs_of_float32_come_back_exactly(values: tuple[float, ...]) -> None:
    assert unpack_floats(pack_floats(values)) == values


@given(st.lists(st.booleans()).map(tuple))
def test_flags_come_back(values: tuple[bool, ...]) -> None:
    assert unpack_flags(bytes(values)) == values


def test_an_id_past_32_bits_is_refused() -> None:
    with pytest.raises(struct.error):
        pack_ids((2**31,))
