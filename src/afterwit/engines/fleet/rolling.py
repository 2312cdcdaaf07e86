"""New weights for a fleet: loaded into one server after another, while the others serve.

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


class Rolling:
    """`stage`, `probe`, `promote`, `discard` and `unload` are the port's."""

    def __init__(self, members: Sequence[Member], *, dtype: str, changed: Callable[[], None]) -> None:
        """`changed` is called whenever another server may serve."""
        self._members, self._dtype, self._changed = members, dtype, changed
        began = members[0].engine.version
        self._live = {SHARED: Live(version=began, oldest=began)}
        self._next: tuple[int, Path, str] | None = None
        self._next_proof: Proof | None = None
        self._staged: list[Member] = []
        self._one_at_a_time = asyncio.Lock()

    def of(self, adapter: str) -> Live:
        """The live weights of an adapter; the base's if it is not loaded."""
        return self._live.get(adapter) or Live()

    def live(self, adapter: str) -> int | None:
        return self._live[adapter].version if adapter in self._live else None

    async def stage(self, version: int, folder: Path, adapter: str) -> None:
        """On every server that answers. The others load it when they are back."""
        async with self._one_at_a_time:
            await self._discard()
            away: EngineUnavailable | None = None
            for member in self._members:
                if member.engine.fault is not None:
                    continue
                try:
                    await member.engine.stage(version, folder, adapter=adapter)
                    self._staged.append(member)
                except EngineUnavailable as error:
                    away = error
                except EngineError:
                    await self._discard()
                    raise
            if not self._staged:
                raise away or EngineUnavailable("no server of the fleet is there to take new weights")
            self._next = (version, folder, adapter)

    async def probe(self, ids: Sequence[int], times: float) -> list[float]:
        """By the first server that answers. The others must agree with it later."""
        async with self._one_at_a_time:
            while self._staged:
                try:
                    scored = await self._staged[0].engine.probe(ids, times=times)
                except EngineUnavailable:
                    if len(self._staged) == 1:
                        raise
                    del self._staged[0]
                    self._next_proof = None
                else:
                    self._next_proof = proof_with(self._next_proof, ids, times, scored)
                    return scored
            raise EngineError("No weights are staged.")

    async def promote(self) -> None:
        """Server by server. EngineError if none accepts the weights; one that does not stays out."""
        async with self._one_at_a_time:
            if self._next is None:
                raise EngineError("No weights are staged.")
            (version, folder, adapter), proof = self._next, self._next_proof
            probed, live = self._staged[0] if proof is not None else None, self.of(adapter)
            failed: EngineError | None = None
            for member in self._staged:
                try:
                    if proof is not None and member is not probed:
                        await self._check(member, proof)
                    await member.engine.promote()
                except EngineError as error:
                    failed = error
                    await self._refused(member, adapter, error)
                else:
                    member.trouble.pop(adapter, None)
                    live.version, live.folder, live.proof = version, folder, proof
                    self._live[adapter] = live
                self._changed()
            self._forget_staged()
            if live.version != version:
                raise failed or EngineError("No weights are staged.")
            live.oldest = version
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
        return lacks and self._next is None and member.retry_at.get(adapter, now) <= now

    async def _give_live(self, member: Member, adapter: str) -> None:
        live = self.of(adapter)
        assert live.folder is not None, "every server begins with the base"
        try:
            await member.engine.stage(live.version, live.folder, adapter=adapter)
            if live.proof is not None:
                await self._check(member, live.proof)
            await member.engine.promote()
        except EngineError as error:
            if not isinstance(error, EngineUnavailable):
                member.retry_at[adapter] = asyncio.get_running_loop().time() + RETRY_S
            await self._refused(member, adapter, error)
            return
        member.trouble.pop(adapter, None)
        log.warning("the server at %s has version %d again", member.name, live.version)
        self._changed()

    async def _check(self, member: Member, proof: Proof) -> None:
        """EngineError unless the weights staged there give the log-probs of the first server."""
        await proof.check(lambda times: member.engine.probe(proof.ids, times=times), self._dtype)

    async def _refused(self, member: Member, adapter: str, error: EngineError) -> None:
        if member.trouble.get(adapter) != str(error):
            log.warning("the server at %s does not take the weights: %s", member.name, error)
        member.trouble[adapter] = str(error)
        with suppress(EngineError):
            await member.engine.discard()

    async def _discard(self) -> None:
        staged = self._staged
        self._forget_staged()
        for member in staged:
            with suppress(EngineUnavailable):
                await member.engine.discard()

    def _forget_staged(self) -> None:
        self._staged, self._next, self._next_proof = [], None, None
