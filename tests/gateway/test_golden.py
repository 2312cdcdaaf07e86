"""Streams as they leave, byte for byte. `python -m tests.gateway.golden` rewrites them."""

from __future__ import annotations

import pytest

from tests.gateway.golden import CASES, path_of, transcript


@pytest.mark.parametrize("name", CASES)
async def test_a_stream_equals_its_golden_transcript_byte_for_byte(name, tmp_path, renderer):
    assert await transcript(name, tmp_path, renderer) == path_of(name).read_bytes()
