"""New weights for a fleet: served by one server first, then by one after another, while the others serve.

The publisher compares the first server's log-probs with the learner's. Each further server must agree with
the first one before it serves, and so must one that was away and loads the live weights again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from afterwit.adapters import SHARED
from afterwit.engines.server.engine import ServerEngine
from afterwit.engines.server.swaps import Proof, proof_with
from afterwit.errors import EngineError, EngineUnavailable

RETRY_S = 60.0
"""Seconds until a server that did not accept the live weights gets them again: loading may take long, and a
person has to look at it."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Member:
    """A server of the fleet."""

    name: str
    """Its address."""
    engine: ServerEngine
    under_way: int = 0
    begun: int = 0
    """Requests so far."""
    trouble: dict[str, str] = field(default_factory=dict)
    """By adapter: why it did not accept the live weights."""
    retry_at: dict[str, float] = field(default_factory=dict)
    """By adapter: when to try again, by the event loop's clock."""

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Around a request."""
        self.begun += 1
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    def version(self, adapter: str) -> int:
        """The version that it has of an adapter; 0: the base."""
        return self.engine.live(adapter) or 0

    def out(self, oldest: int, adapter: str = SHARED) -> str | None:
        """Why it does not serve an adapter in version `oldest` or newer; None if it does."""
        if self.engine.fault is not None:
            return self.engine.fault
        if (has := self.version(adapter)) < oldest:
            return self.trouble.get(adapter) or f"it has version {has} and takes version {oldest}"
        return None


@dataclass(slots=True, kw_only=True)
class Live:
    """The live weights of one adapter."""

    version: int = 0
    oldest: int = 0
    """The oldest version that still serves: below `version` while that is rolled out."""
    folder: Path | None = None
    """None: the base's weights, which every server begins with."""
    proof: Proof | None = None


@dataclass(slots=True)
class Staged:
    """Weights that one server has loaded, and no server serves."""

    member: Member
    version: int
    folder: Path
    adapter: str
    proof: Proof | None = None


class Rolling:
    """`stage`, `probe`, `promote`, `discard` and `unload` are the port's."""

    def __init__(self, members: Sequence[Member], *, dtype: str, changed: Callable[[], None]) -> None:
        """`changed` is called whenever another server may serve."""
        self._members, self._dtype, self._changed = members, dtype, changed
        began = members[0].engine.version
        self._live = {SHARED: Live(version=began, oldest=began)}
        self._staged: Staged | None = None
        self._one_at_a_time = asyncio.Lock()

    def of(self, adapter: str) -> Live:
        """The live weights of an adapter; the base's if it is not loaded."""
        return self._live.get(adapter) or Live()

    def live(self, adapter: str) -> int | None:
        return self._live[adapter].version if adapter in self._live else None

    async def stage(self, version: int, folder: Path, adapter: str) -> None:
        """On the first server that answers."""
        async with self._one_at_a_time:
            await self._discard()
            away: EngineUnavailable | None = None
            for member in self._members:
                if member.engine.fault is not None:
                    continue
                try:
                    await member.engine.stage(version, folder, adapter=adapter)
                except EngineUnavailable as error:
                    away = error
                else:
                    self._staged = Staged(member, version, folder, adapter)
                    return
            raise away or EngineUnavailable("no server of the fleet is there to take new weights")

    async def probe(self, ids: Sequence[int], times: float) -> list[float]:
        async with self._one_at_a_time:
            staged = self._require_staged()
            scored = await staged.member.engine.probe(ids, times=times)
            staged.proof = proof_with(staged.proof, ids, times, scored)
            return scored

    async def promote(self) -> None:
        """On that server, then on one after another. A server that does not accept the weights stays out."""
        async with self._one_at_a_time:
            staged = self._require_staged()
            await staged.member.engine.promote()
            self._staged = None
            live = self._live.setdefault(staged.adapter, Live())
            live.version, live.folder, live.proof = staged.version, staged.folder, staged.proof
            staged.member.trouble.pop(staged.adapter, None)
            self._changed()
            for member in self._members:
                if member is not staged.member and member.engine.fault is None:
                    await self._give_live(member, staged.adapter)
            live.oldest = live.version
            self._changed()

    async def discard(self) -> None:
        async with self._one_at_a_time:
            await self._discard()

    async def unload(self, adapter: str) -> None:
        """From every server; one that is away comes back without it."""
        async with self._one_at_a_time:
            if self._live.pop(adapter, None) is None:
                return
            for member in self._members:
                member.trouble.pop(adapter, None)
                member.retry_at.pop(adapter, None)
                await member.engine.unload(adapter)

    async def catch_up(self) -> None:
        """Give the live weights to every server that answers without them, unless new ones are staged."""
        for member in self._members:
            for adapter in list(self._live):
                if self._lacks_live(member, adapter):
                    async with self._one_at_a_time:
                        if self._lacks_live(member, adapter):  # it may have changed meanwhile
                            await self._give_live(member, adapter)

    def _lacks_live(self, member: Member, adapter: str) -> bool:
        now = asyncio.get_running_loop().time()
        lacks = member.engine.fault is None and member.version(adapter) < self.of(adapter).oldest
        return lacks and self._staged is None and member.retry_at.get(adapter, now) <= now

    async def _give_live(self, member: Member, adapter: str) -> None:
        """The server must give the log-probs of the first one before it serves the weights."""
        live = self.of(adapter)
        assert live.folder is not None, "every server begins with the base"
        try:
            await member.engine.stage(live.version, live.folder, adapter=adapter)
            if (proof := live.proof) is not None:
                await proof.check(lambda times: member.engine.probe(proof.ids, times=times), self._dtype)
            await member.engine.promote()
        except EngineError as error:
            if not isinstance(error, EngineUnavailable):
                member.retry_at[adapter] = asyncio.get_running_loop().time() + RETRY_S
            if member.trouble.get(adapter) != str(error):
                log.warning("the server at %s does not take the weights: %s", member.name, error)
            member.trouble[adapter] = str(error)
            with suppress(EngineError):
                await member.engine.discard()
        else:
            member.trouble.pop(adapter, None)
            log.info("the server at %s serves version %d", member.name, live.version)
            self._changed()

    async def _discard(self) -> None:
        staged, self._staged = self._staged, None
        if staged is not None:
            with suppress(EngineUnavailable):
                await staged.member.engine.discard()

    def _require_staged(self) -> Staged:
        if self._staged is None:
            raise EngineError("No weights are staged.")
        return self._staged
