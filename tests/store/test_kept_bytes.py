"""A cached copy takes as much memory as the cache counts."""

from __future__ import annotations

import sys
from ctypes import CDLL, c_size_t, c_void_p

import orjson
import pytest

from afterwit.byte_cache import exact


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc for the size of a block")
@pytest.mark.parametrize("length", [1000, 20_000, 70_000])
def test_a_copy_to_keep_holds_no_more_than_its_length(length: int) -> None:
    size = CDLL(None).malloc_usable_size
    size.argtypes, size.restype = [c_void_p], c_size_t
    kept = exact(orjson.dumps("x" * length))
    assert size(id(kept)) < length + 200
