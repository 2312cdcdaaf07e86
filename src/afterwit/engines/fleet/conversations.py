"""Which request goes on from which earlier one, by the ids of their prompts. No I/O.

A prompt that begins with an earlier prompt goes on with its conversation: the next turn of a session, a
retry, a branch. Prompts are found by hashes of their blocks, so that a lookup costs one pass over the ids.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from afterwit.core.adapters import SHARED

BLOCK = 16
"""Ids that are hashed together."""
LOOSE = 8
"""Ids at the end of a prompt that do not count: a template may write the beginning of a response in another
way once the response follows."""
MOST = 100_000
"""Prompts that are remembered; the one that was used longest ago is forgotten first."""


@dataclass(slots=True, eq=False)
class Conversation:
    """Prompts that go on from each other."""

    home: int | None = None
    """The server that answered last, by its place in the fleet; None: none yet."""
    version: int | None = None
    """The newest version that it heard; None: it heard none."""

    def heard(self, version: int) -> None:
        """Tokens of a version were sampled."""
        self.version = version if self.version is None else max(self.version, version)


class Conversations:
    """Those of the latest prompts."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._of: OrderedDict[tuple[int, tuple[int, ...]], Conversation] = OrderedDict()
        """By the hash of a prompt's whole blocks, and the ids behind them."""
        self._lengths: dict[int, Counter[int]] = {}
        """How many ids lie behind those blocks in the prompts that are known."""

    def of(self, prompt_ids: Sequence[int], adapter: str = SHARED) -> Conversation:
        """The conversation of the longest earlier prompt that this one begins with; else a new one.

        The prompt is remembered as part of it. Those of other adapters are none of its own: what these read
        is no use to it, and their versions are others.
        """
        ids = tuple(prompt_ids)
        hashes = list(_hashes(ids, adapter))
        found = self._longest(ids, hashes) or Conversation()
        if len(ids) > LOOSE:
            whole, rest = divmod(len(ids) - LOOSE, BLOCK)
            self._remember((hashes[whole], ids[whole * BLOCK :][:rest]), found)
        return found

    def _longest(self, ids: tuple[int, ...], hashes: list[int]) -> Conversation | None:
        for whole in reversed(range(len(hashes))):
            for length in sorted(self._lengths.get(hashes[whole], ()), reverse=True):
                key = (hashes[whole], ids[whole * BLOCK :][:length])
                if (found := self._of.get(key)) is not None:
                    self._of.move_to_end(key)
                    return found
        return None

    def _remember(self, key: tuple[int, tuple[int, ...]], conversation: Conversation) -> None:
        if key not in self._of:
            self._lengths.setdefault(key[0], Counter())[len(key[1])] += 1
        self._of[key] = conversation
        self._of.move_to_end(key)
        if len(self._of) > self._most:
            (blocks, rest), _ = self._of.popitem(last=False)
            self._lengths[blocks] -= Counter({len(rest): 1})
            if not self._lengths[blocks]:
                del self._lengths[blocks]


def _hashes(ids: tuple[int, ...], adapter: str) -> Iterator[int]:
    """Of the first 0, 1, 2, ... whole blocks."""
    so_far = hash(adapter)
    yield so_far
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        so_far = hash((so_far, ids[start : start + BLOCK]))
        yield so_far
