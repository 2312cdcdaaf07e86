"""Results of a pure function are kept within a number of bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from afterwit.byte_cache import ENTRY_BYTES, ByteCache


@given(
    keys=st.lists(st.text("abcdef", min_size=1, max_size=3), max_size=60),
    room=st.integers(0, 20 * ENTRY_BYTES),
)
def test_whatever_is_asked_the_answer_is_the_functions_and_the_room_is_enough(keys: list[str], room: int):
    kept = ByteCache(str.upper, most_bytes=room, size=lambda key, result: len(key) + len(result))
    for key in keys:
        assert kept(key) == key.upper()
        assert 0 <= kept.bytes <= room


def test_what_was_not_asked_for_longest_is_forgotten_first():
    asked: list[str] = []

    def noted(key: str) -> int:
        asked.append(key)
        return len(key)

    kept = ByteCache(noted, most_bytes=2 * ENTRY_BYTES, size=lambda key, result: 0)
    for key in ("a", "b", "a", "c", "a", "b"):
        kept(key)
    assert asked == ["a", "b", "c", "b"]


def test_a_result_larger_than_the_cache_leaves_the_others():
    asked: list[str] = []

    def noted(key: str) -> int:
        asked.append(key)
        return len(key)

    kept = ByteCache(noted, most_bytes=ENTRY_BYTES + 1, size=lambda key, result: len(key))
    for key in ("a", "large", "a"):
        kept(key)
    assert asked == ["a", "large"]
