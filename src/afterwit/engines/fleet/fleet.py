"""The engine port over several servers of one model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import fields, replace
from pathlib import Path

from afterwit.adapters import SHARED
from afterwit.agreement import gap, most
from afterwit.engines.fleet.member import Conversation, Conversations, Member, chosen
from afterwit.engines.fleet.rolling import Rolling
from afterwit.engines.kinds import check_fits, check_scores
from afterwit.engines.port import Capabilities, Facts, Generate, Score, Scored, Step, Weights
from afterwit.engines.server.engine import Interruptions, ServerEngine
from afterwit.errors import AfterwitError, EngineUnavailable, NobodyAnswers, SettingError

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


MODEL = ("model", "vocabulary", "end_ids", "fingerprint", "dtype")
"""The facts that all must share."""

UNPROMISED = ("basis", "remedies")
"""Of what a fleet can: `common` compares the one, the other is words."""


def same_facts(members: Sequence[Member]) -> Facts:
    """The facts of all: the shortest context. SettingError with both names if they serve different models."""
    first, *others = members
    ours = first.engine.facts
    for other in others:
        theirs = other.engine.facts
        for name in MODEL:
            if (one := getattr(ours, name)) != (two := getattr(theirs, name)):
                raise SettingError(
                    f"the servers of engine.url differ: {name} is {one} at {first.name}, but {two} at "
                    f"{other.name}; start all with the same model and --dtype"
                )
        one, two = (each.engine.proof.said[1.0] for each in (first, other))
        apart, limit = gap(one, two), most(ours.dtype)
        if not apart <= limit:
            raise SettingError(
                f"the servers of engine.url do not serve the same weights: of the same ids the log-probs at "
                f"{first.name} and {other.name} differ by {apart:.2g} on average, and at most {limit:g} is "
                "right; start all with the same model"
            )
    return replace(ours, context_length=min(each.engine.facts.context_length for each in members))


def check_joins(member: Member, first: Member, facts: Facts, promised: Capabilities) -> None:
    """SettingError if a server that comes later is not of the fleet's model, or can less than was promised.

    `facts` and `promised` are the fleet's, which hold for as long as it runs.
    """
    shortest = same_facts([first, member]).context_length
    if shortest < facts.context_length:
        raise SettingError(
            f"the context of {member.name} is {shortest} ids, but the fleet began with "
            f"{facts.context_length}: start that server with as much, or Afterwit again with it there"
        )
    can = common([first, member])
    for field in fields(promised):
        if field.name not in UNPROMISED and _less(getattr(can, field.name), getattr(promised, field.name)):
            raise SettingError(
                f"{member.name} can less than the fleet began with ({field.name}): start that server with "
                "the same flags, or Afterwit again with it there"
            )


def _less(can: bool | int | None, promised: bool | int | None) -> bool:
    """None: without bound."""
    return can is not None and (promised is None or can < promised)


def common(members: Sequence[Member]) -> Capabilities:
    """What every one can do. SettingError if their log-probs are of different distributions."""
    all_can = [each.engine.capabilities for each in members]
    first = all_can[0]
    for member, can in zip(members, all_can, strict=True):
        if can.basis is not first.basis:
            raise SettingError(
                f"log-probs are {first.basis.value} at {members[0].name}, but {can.basis.value} at "
                f"{member.name}: start the servers of engine.url with the same flags"
            )
    probes = [can.longest_probe for can in all_can if can.longest_probe is not None]
    return Capabilities(
        basis=first.basis,
        base_weights=all(can.base_weights for can in all_can),
        forced_prefix=all(can.forced_prefix for can in all_can),
        whole_weights=all(can.whole_weights for can in all_can),
        adapters=all(can.adapters for can in all_can),
        own_adapters=all(can.own_adapters for can in all_can),
        constraint=all(can.constraint for can in all_can),
        top_logprobs=min(can.top_logprobs for can in all_can),
        scored_ids=min(can.scored_ids for can in all_can),
        scored_tau=all(can.scored_tau for can in all_can),
        longest_probe=min(probes) if probes else None,
        remedies=first.remedies,
    )


AGAIN_S = 60.0
"""Seconds until a server that does not fit is looked at again: somebody has to start it anew."""

Open = Callable[[], Awaitable[ServerEngine]]
"""Waits for the server some time. NobodyAnswers, or SettingError if it does not fit the model."""


class Late:
    """Make it inside the event loop that uses it."""

    def __init__(self, openers: Mapping[str, Open], join: Callable[[str, ServerEngine], None]) -> None:
        """By the servers' names. `join` takes an engine, or raises SettingError."""
        self.reasons = dict.fromkeys(openers, "it has not answered yet")
        """Why each is not there, by name."""
        self._join = join
        self._tasks = [asyncio.create_task(self._await(name, open_)) for name, open_ in openers.items()]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _await(self, name: str, open_: Open) -> None:
        while True:
            try:
                engine = await open_()
                try:
                    self._join(name, engine)
                except BaseException:
                    await engine.close()
                    raise
            except NobodyAnswers:
                continue
            except AfterwitError as error:
                if self.reasons[name] != str(error):
                    log.warning("the fleet: %s", error)
                self.reasons[name] = str(error)
                await asyncio.sleep(AGAIN_S)
            else:
                del self.reasons[name]
                log.info("the server at %s has joined the fleet", name)
                return
