"""Results of a pure function, kept for when it is asked the same again, within a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
ENTRY_BYTES = 400
"""What an entry takes beside its key and its result, about."""


class Kept(Generic[K, V]):
    """The function, with memory: what was not asked for longest is forgotten first. Any thread may call it.

    Keys are compared, not only their hashes.
    """

    def __init__(self, function: Callable[[K], V], *, most_bytes: int, size: Callable[[K, V], int]) -> None:
        """`size`: bytes of a key and its result."""
        self._function, self._most_bytes, self._size = function, most_bytes, size
        self._results: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0
        """Bytes of what is kept, at most `most_bytes`."""

    def __call__(self, key: K) -> V:
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = self._function(key)
        self.keep(key, result)
        return result

    def keep(self, key: K, result: V) -> None:
        """Remember a result that is known already."""
        with self._lock:
            if key not in self._results:
                self._results[key] = result
                self.bytes += ENTRY_BYTES + self._size(key, result)
            while self.bytes > self._most_bytes:
                forgotten = self._results.popitem(last=False)
                self.bytes -= ENTRY_BYTES + self._size(*forgotten)
