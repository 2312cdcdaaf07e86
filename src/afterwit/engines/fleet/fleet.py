"""The engine port over several servers of one model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path

from afterwit.core.adapters import SHARED
from afterwit.core.errors import AfterwitError, EngineUnavailable
from afterwit.engines.fit import check_fits, check_scores
from afterwit.engines.fleet.agreed import check_joins, common, same_facts
from afterwit.engines.fleet.conversations import Conversation, Conversations
from afterwit.engines.fleet.late import Late, Open
from afterwit.engines.fleet.member import Member, chosen
from afterwit.engines.fleet.rolling import Rolling
from afterwit.engines.port import Generate, Score, Scored, Step, Weights
from afterwit.engines.server.engine import ServerEngine
from afterwit.engines.server.interruptions import Interruptions

NOBODY: Mapping[str, Open] = {}
log = logging.getLogger(__name__)


class Fleet:
    """Implements `port.Engine`. Make it inside the event loop that uses it; it closes its members.

    A request that goes on from an earlier one goes to the server that answered that one. A server that is
    away is left out, and its responses go on elsewhere. While new weights are rolled through, no request of a
    conversation meets an older version than the conversation has heard, and a new conversation meets the
    newest one.
    """

    def __init__(
        self,
        members: Sequence[Member],
        late: Mapping[str, Open] = NOBODY,
        *,
        patience_s: float,
        watch_s: float,
    ) -> None:
        """`late`: how to open further servers, by name; they join once they are there and as the others are.

        SettingError with names if the members serve different models.
        """
        self.facts, self.capabilities = same_facts(members), common(members)
        self._members, self._patience_s, self._watch_s = list(members), patience_s, watch_s
        self._rolling = Rolling(self._members, dtype=self.facts.dtype, changed=self._tell)
        self._conversations = {weights: Conversations() for weights in Weights}
        self._changed = asyncio.Event()
        self._closed = False
        self._watching = asyncio.create_task(self._watch())
        self._late = Late(late, self._join)

    @property
    def version(self) -> int:
        return self._rolling.of(SHARED).version

    def live(self, adapter: str) -> int | None:
        return self._rolling.live(adapter)

    @property
    def fault(self) -> str | None:
        if self._closed:
            return "The engine was closed."
        return None if self._serving() else self._outs()

    @property
    def reduced(self) -> str | None:
        return self._outs() or None if self._serving() else None

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """Steps as a server streams them; after a server's death from another, which reads all of it anew."""
        self._check_open()
        check_fits(request, self.facts)
        response = self._members[0].engine.begun(request, self.facts)
        weights, adapter = request.weights, request.adapter if request.weights is Weights.LIVE else SHARED
        conversation = self._conversations[weights].of(request.prompt_ids, adapter)
        interruptions = Interruptions(self._check_open)
        while True:
            member = await self._chosen(conversation, weights, adapter)
            with interruptions.tolerated(), member.busy():
                async with aclosing(member.engine.rest(response, weights, adapter)) as steps:
                    async for step in steps:
                        for version in step.versions:
                            conversation.heard(version)
                        yield step
                        if step.ended:
                            return

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """All rows by one server, so by one version; by another if it dies meanwhile."""
        self._check_open()
        check_scores(rows, top, self.facts, self.capabilities)
        conversation = self._conversations[weights].of(rows[0].prompt_ids) if rows else Conversation()
        interruptions = Interruptions(self._check_open)
        while True:
            member = await self._chosen(conversation, weights)
            with interruptions.tolerated(), member.busy():
                return await member.engine.score(rows, top=top, weights=weights)

    async def stage(self, version: int, folder: Path, *, adapter: str = SHARED) -> None:
        self._check_open()
        await self._rolling.stage(version, await asyncio.to_thread(folder.resolve), adapter)

    async def probe(self, ids: Sequence[int], *, times: float = 1.0) -> list[float]:
        self._check_open()
        return await self._rolling.probe(ids, times)

    async def promote(self) -> None:
        self._check_open()
        await self._rolling.promote()

    async def discard(self) -> None:
        self._check_open()
        await self._rolling.discard()

    async def unload(self, adapter: str) -> None:
        await self._rolling.unload(adapter)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._late.close()
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching
        self._tell()
        await asyncio.gather(*(member.engine.close() for member in self._members))

    async def _chosen(self, conversation: Conversation, weights: Weights, adapter: str = SHARED) -> Member:
        """Who takes the request. EngineUnavailable if nobody can within `patience_s` seconds."""
        try:
            async with asyncio.timeout(self._patience_s):
                while True:
                    self._check_open()
                    oldest = self._oldest(conversation, weights, adapter)
                    member = chosen(self._members, conversation, oldest=oldest, adapter=adapter)
                    if member is not None:
                        conversation.home = self._members.index(member)
                        return member
                    await self._changed.wait()
        except TimeoutError as error:
            words = self._outs() or "servers with the newest weights are away"
            raise EngineUnavailable(f"{words} (a request waited {self._patience_s:g} s)") from error

    def _oldest(self, conversation: Conversation, weights: Weights, adapter: str) -> int:
        """The oldest version that may answer. Base weights are of no version.

        An adapter of somebody's own may have come back in an older version than was heard, or be away.
        """
        rolled = self._rolling.of(adapter)
        if weights is Weights.BASE:
            return rolled.oldest
        heard = rolled.version if conversation.version is None else conversation.version
        return max(min(heard, rolled.version), rolled.oldest)

    def _join(self, name: str, engine: ServerEngine) -> None:
        """A further server, which gets the live weights before it serves. SettingError if it is another."""
        member = Member(name, engine)
        check_joins(member, self._members[0], self.facts, self.capabilities)
        self._members.append(member)
        self._tell()

    def _serving(self) -> bool:
        return any(member.out(self._rolling.of(SHARED).oldest) is None for member in self._members)

    def _outs(self) -> str:
        """Why servers are out, by their names; empty if none is."""
        oldest = self._rolling.of(SHARED).oldest
        reasons = {member.name: member.out(oldest) for member in self._members}
        out = {name: reason for name, reason in reasons.items() if reason is not None} | self._late.reasons
        words = "; ".join(f"{name}: {reason}" for name, reason in out.items())
        every = len(self._members) + len(self._late.reasons)
        return f"{len(out)} of {every} servers are out: {words}" if out else ""

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _watch(self) -> None:
        """Servers say by themselves when they are back; here they get what they missed."""
        while True:
            try:
                await self._rolling.catch_up()
            except AfterwitError as error:
                log.warning("the fleet: %s", error)
            except Exception:  # a fault of our own must not end the watch: nobody would be taken back in
                log.exception("watching the fleet failed")
            self._tell()
            await asyncio.sleep(self._watch_s)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnavailable("The engine was closed.")
