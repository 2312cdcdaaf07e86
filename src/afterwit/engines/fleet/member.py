"""One server of a fleet, and which of several takes a request. No I/O."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from afterwit.adapters import SHARED
from afterwit.engines.server.engine import ServerEngine

MOST_AHEAD = 8
"""Requests that a conversation's server may have more under way than the idlest one. Beyond that reading the
prompt anew elsewhere costs less than waiting."""


@dataclass(slots=True, eq=False)
class Member:
    """A server of the fleet."""

    name: str
    """Its address, for people."""
    engine: ServerEngine
    under_way: int = 0
    begun: int = 0
    """Requests that it got so far."""
    trouble: dict[str, str] = field(default_factory=dict)
    """By adapter: why it could not take the weights that the others have."""
    not_before: dict[str, float] = field(default_factory=dict)
    """By adapter: when to try it again with them, by the event loop's clock."""

    @contextmanager
    def busy(self) -> Iterator[None]:
        """A request is under way there for as long as the context lasts."""
        self.begun += 1
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    def version(self, adapter: str) -> int:
        """What it has of an adapter; 0: the base."""
        return self.engine.live(adapter) or 0

    def out(self, oldest: int, adapter: str = SHARED) -> str | None:
        """Why it serves nobody of an adapter now, if versions before `oldest` are served no more; None: it
        serves."""
        if self.engine.fault is not None:
            return self.engine.fault
        if (has := self.version(adapter)) < oldest:
            return self.trouble.get(adapter) or f"it has version {has} and takes version {oldest}"
        return None


def chosen(
    members: Sequence[Member], conversation: Conversation, *, oldest: int, adapter: str = SHARED
) -> Member | None:
    """Who takes the next request of a conversation; None if nobody can.

    The server that answered it last, unless that one is busier by MOST_AHEAD requests; else the idlest, and
    of equally idle ones the one that got the fewest. None whose version of the adapter is older than
    `oldest`.
    """
    able = [each for each in members if each.out(oldest, adapter) is None]
    if not able:
        return None
    idlest = min(able, key=lambda each: (each.under_way, each.begun))
    home = None if conversation.home is None else members[conversation.home]
    if home in able and home.under_way - idlest.under_way < MOST_AHEAD:
        return home
    return idlest


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
