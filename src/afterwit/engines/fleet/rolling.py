"""New weights for a fleet: rolled through one server after another, while the others serve.

The first server's log-probs are compared with the learner's by whoever asks for `probe`. Each further server
must give the first one's before it serves, and so must one that was away and takes the live weights again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from afterwit.adapters import SHARED
from afterwit.engines.fleet.member import Member
from afterwit.engines.server.swaps import Proof, proof_with
from afterwit.errors import EngineError, EngineUnavailable

AGAIN_S = 60.0
"""Seconds until a server that did not take the live weights is given them again: reading them may take long,
and a person will have to look at it."""

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Rolled:
    """What is live of one adapter."""

    version: int = 0
    """The newest version that is served; 0: the base."""
    oldest: int = 0
    """The oldest that is: another one while a version is rolled through."""
    folder: Path | None = None
    """The weights of `version`; None: the base's, which every server begins with."""
    proof: Proof | None = None


class Rolling:
    """`stage`, `probe`, `promote`, `discard` and `unload` are the port's."""

    def __init__(self, members: Sequence[Member], *, dtype: str, changed: Callable[[], None]) -> None:
        """`changed` is called whenever another server may serve."""
        self._members, self._dtype, self._changed = members, dtype, changed
        began = members[0].engine.version
        self._live = {SHARED: Rolled(version=began, oldest=began)}
        self._next: tuple[int, Path, str] | None = None
        self._next_proof: Proof | None = None
        self._staged: list[Member] = []
        self._one_at_a_time = asyncio.Lock()

    def of(self, adapter: str) -> Rolled:
        """What is live of an adapter; the base if it is not loaded."""
        return self._live.get(adapter) or Rolled()

    def live(self, adapter: str) -> int | None:
        """The port's."""
        return self._live[adapter].version if adapter in self._live else None

    async def stage(self, version: int, folder: Path, adapter: str) -> None:
        """On every server that is there; the others take it when they are back."""
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
        """By the first server that is there: the others must agree with it later."""
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
        """Server by server. EngineError if none of them takes the weights; one that does not stays out."""
        async with self._one_at_a_time:
            if self._next is None:
                raise EngineError("No weights are staged.")
            (version, folder, adapter), proof = self._next, self._next_proof
            probed, rolled = self._staged[0] if proof is not None else None, self.of(adapter)
            failed: EngineError | None = None
            for member in self._staged:
                try:
                    if proof is not None and member is not probed:
                        await _check(member, proof, self._dtype)
                    await member.engine.promote()
                except EngineError as error:
                    failed = error
                    await self._refused(member, adapter, error)
                else:
                    member.trouble.pop(adapter, None)
                    rolled.version, rolled.folder, rolled.proof = version, folder, proof
                    self._live[adapter] = rolled
                self._changed()
            self._forget_staged()
            if rolled.version != version:
                raise failed or EngineError("No weights are staged.")
            rolled.oldest = version
            self._changed()

    async def discard(self) -> None:
        async with self._one_at_a_time:
            await self._discard()

    async def unload(self, adapter: str) -> None:
        """From every server, also from those that are away: they come back without it."""
        async with self._one_at_a_time:
            if self._live.pop(adapter, None) is None:
                return
            for member in self._members:
                member.trouble.pop(adapter, None)
                member.not_before.pop(adapter, None)
                await member.engine.unload(adapter)

    async def catch_up(self) -> None:
        """Give the live weights to every server that is there without them, unless new ones are staged."""
        for member in self._members:
            for adapter in list(self._live):
                if self._lacks_live(member, adapter):
                    async with self._one_at_a_time:
                        if self._lacks_live(member, adapter):  # still: it was given, or unloaded meanwhile
                            await self._give_live(member, adapter)

    def _lacks_live(self, member: Member, adapter: str) -> bool:
        """Whether a server should be given the live weights of an adapter now."""
        now = asyncio.get_running_loop().time()
        behind = member.engine.fault is None and member.version(adapter) < self.of(adapter).oldest
        return behind and self._next is None and member.not_before.get(adapter, now) <= now

    async def _give_live(self, member: Member, adapter: str) -> None:
        rolled = self.of(adapter)
        assert rolled.folder is not None, "a fleet that took no weights has none that are behind"
        try:
            await member.engine.stage(rolled.version, rolled.folder, adapter=adapter)
            if rolled.proof is not None:
                await _check(member, rolled.proof, self._dtype)
            await member.engine.promote()
        except EngineError as error:
            if not isinstance(error, EngineUnavailable):
                member.not_before[adapter] = asyncio.get_running_loop().time() + AGAIN_S
            await self._refused(member, adapter, error)
            return
        member.trouble.pop(adapter, None)
        log.warning("the server at %s has version %d again", member.name, rolled.version)
        self._changed()

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


async def _check(member: Member, proof: Proof, dtype: str) -> None:
    """EngineError unless a server says of what is staged there what the first one said."""
    await proof.check(lambda times: member.engine.probe(proof.ids, times=times), dtype)
