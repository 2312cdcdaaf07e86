"""New weights for a fleet: rolled through one server after another, while the others serve.

The first server's log-probs are compared with the learner's by whoever asks for `probe`. Each further server
must give the first one's before it serves, and so must one that was away and takes the live weights again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from afterwit.core.errors import EngineError, EngineUnavailable
from afterwit.engines.fleet.member import Member
from afterwit.engines.server.swaps.proof import Proof

AGAIN_S = 60.0
"""Seconds until a server that did not take the live weights is given them again: reading them may take long,
and a person will have to look at it."""
log = logging.getLogger(__name__)


class Rolling:
    """`stage`, `probe`, `promote` and `discard` are the port's."""

    def __init__(self, members: Sequence[Member], *, dtype: str, changed: Callable[[], None]) -> None:
        """`changed` is called whenever another server may serve."""
        self._members, self._dtype, self._changed = members, dtype, changed
        self.version = self.oldest = members[0].engine.version
        """The newest version that is served, and the oldest: they differ while one is rolled through."""
        self._folder: Path | None = None
        """The weights of the live version; None: the base's, which every server begins with."""
        self._proof: Proof | None = None
        self._next: tuple[int, Path] | None = None
        self._next_proof: Proof | None = None
        self._staged: list[Member] = []
        self._one_at_a_time = asyncio.Lock()

    async def stage(self, version: int, folder: Path) -> None:
        """On every server that is there; the others take it when they are back."""
        async with self._one_at_a_time:
            await self._discard()
            away: EngineUnavailable | None = None
            for member in self._members:
                if member.engine.fault is not None:
                    continue
                try:
                    await member.engine.stage(version, folder)
                    self._staged.append(member)
                except EngineUnavailable as error:
                    away = error
                except EngineError:
                    await self._discard()
                    raise
            if not self._staged:
                raise away or EngineUnavailable("no server of the fleet is there to take new weights")
            self._next = (version, folder)

    async def probe(self, ids: Sequence[int]) -> list[float]:
        """By the first server that is there: the others must agree with it later."""
        async with self._one_at_a_time:
            while self._staged:
                try:
                    scored = await self._staged[0].engine.probe(ids)
                except EngineUnavailable:
                    if len(self._staged) == 1:
                        raise
                    del self._staged[0]
                else:
                    self._next_proof = Proof(ids=tuple(ids), logprobs=tuple(scored))
                    return scored
            raise EngineError("No weights are staged.")

    async def promote(self) -> None:
        """Server by server. EngineError if none of them takes the weights; one that does not stays out."""
        async with self._one_at_a_time:
            if self._next is None:
                raise EngineError("No weights are staged.")
            (version, folder), proof = self._next, self._next_proof
            probed = self._staged[0] if proof is not None else None
            failed: EngineError | None = None
            for member in self._staged:
                try:
                    if proof is not None and member is not probed:
                        proof.check(await member.engine.probe(proof.ids), self._dtype)
                    await member.engine.promote()
                except EngineError as error:
                    failed = error
                    await self._refused(member, error)
                else:
                    member.trouble = None
                    self.version, self._folder, self._proof = version, folder, proof
                self._changed()
            self._forget_staged()
            if self.version != version:
                raise failed or EngineError("No weights are staged.")
            self.oldest = version
            self._changed()

    async def discard(self) -> None:
        async with self._one_at_a_time:
            await self._discard()

    async def catch_up(self) -> None:
        """Give the live weights to every server that is there without them, unless new ones are staged."""
        for member in self._members:
            if self._lacks_live(member):
                async with self._one_at_a_time:
                    if self._lacks_live(member):  # still: others were staged or given while this waited
                        await self._give_live(member)

    def _lacks_live(self, member: Member) -> bool:
        """Whether a server should be given the live weights now."""
        now = asyncio.get_running_loop().time()
        behind = member.engine.fault is None and member.engine.version < self.oldest
        return behind and self._next is None and member.not_before <= now

    async def _give_live(self, member: Member) -> None:
        assert self._folder is not None, "a fleet that took no weights has none that are behind"
        try:
            await member.engine.stage(self.version, self._folder)
            if self._proof is not None:
                self._proof.check(await member.engine.probe(self._proof.ids), self._dtype)
            await member.engine.promote()
        except EngineError as error:
            if not isinstance(error, EngineUnavailable):
                member.not_before = asyncio.get_running_loop().time() + AGAIN_S
            await self._refused(member, error)
            return
        member.trouble = None
        log.warning("the server at %s has version %d again", member.name, self.version)
        self._changed()

    async def _refused(self, member: Member, error: EngineError) -> None:
        if member.trouble != str(error):
            log.warning("the server at %s does not take the weights: %s", member.name, error)
        member.trouble = str(error)
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
