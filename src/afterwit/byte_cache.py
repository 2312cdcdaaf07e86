"""Results kept in memory, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_BYTES = 400
"""The approximate size of an entry without its key and its result."""


class ByteCache(Generic[K, V]):
    """The function with a cache. The least recently used results are dropped first. Thread-safe."""

    def __init__(self, function: Callable[[K], V], *, most_bytes: int, size: Callable[[K, V], int]) -> None:
        """`size`: bytes of a key and its result."""
        self._function, self._most_bytes, self._size = function, most_bytes, size
        self._results: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0
        """Bytes in the cache, at most `most_bytes`."""

    def __call__(self, key: K) -> V:
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = self._function(key)
        self.keep(key, result)
        return result

    def keep(self, key: K, result: V) -> None:
        """Add a result that is known already, unless it alone is larger than the cache."""
        size = ENTRY_BYTES + self._size(key, result)
        if size > self._most_bytes:
            return
        with self._lock:
            if key not in self._results:
                self._results[key] = result
                self.bytes += size
            while self.bytes > self._most_bytes:
                dropped = self._results.popitem(last=False)
                self.bytes -= ENTRY_BYTES + self._size(*dropped)


def exact(json_bytes: bytes) -> bytes:
    """A copy to keep: orjson's own bytes hold the buffer in which they were written, up to fifteen times as
    large, and at least four kibibytes."""
    return bytes(memoryview(json_bytes))
