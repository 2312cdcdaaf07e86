"""The engine port over several servers of one model."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from afterwit.adapters import SHARED
from afterwit.agreement import gap, most
from afterwit.engines.fleet.rolling import Member, Rolling
from afterwit.engines.port import (
    Capabilities,
    Engine,
    Facts,
    Generate,
    Score,
    Scored,
    Step,
    Weights,
    check_fits,
    check_scores,
    common,
)
from afterwit.engines.server.engine import Interruptions, ServerEngine, open_server
from afterwit.engines.server.inspect import Inspect
from afterwit.engines.server.settings import SglangSettings, VllmSettings
from afterwit.errors import AfterwitError, EngineUnavailable, NobodyAnswers, SettingError

LATE_S = 10.0
"""Seconds that further servers have to open once one is open. Later ones join while the fleet serves."""
RETRY_S = 60.0
"""Seconds until a server that does not fit is checked again: a person has to restart it."""
MOST_AHEAD = 8
"""Requests that the server with a prompt's prefix may have more than the idlest one. Beyond that, reading the
prompt elsewhere costs less than waiting."""
BLOCK = 16
"""Ids that are hashed together."""
LOOSE = 8
"""Ids at the end of a prompt that do not count: a template may write the beginning of a response in another
way once the response follows."""
MOST_PREFIXES = 100_000
MODEL = ("model", "vocabulary", "end_ids", "fingerprint", "dtype")
"""The facts that all servers must share."""

Open = Callable[[], Awaitable[ServerEngine]]
"""Waits for the server some time. NobodyAnswers, or SettingError if it does not fit the model."""

log = logging.getLogger(__name__)


async def open_fleet(
    folder: Path, settings: VllmSettings | SglangSettings, inspect: Inspect, *, takes_weights: bool
) -> Engine:
    """The engine over the server, or all servers, of `engine.url`.

    Of several, one is enough to begin with. SettingError if one does not fit the model, or if two serve
    different models; NobodyAnswers if none answers within `patience_s`.
    """
    openers: dict[str, Open] = {
        url: partial(open_server, folder, replace(settings, url=url), inspect, takes_weights=takes_weights)
        for url in settings.urls
    }
    if len(openers) == 1:
        return await openers[settings.urls[0]]()
    tasks = {url: asyncio.ensure_future(open_()) for url, open_ in openers.items()}
    try:
        await _first_open(tasks.values())
        engines = await _opened(tasks)
        if not engines:
            await tasks[settings.urls[0]]  # raises NobodyAnswers
        members = [Member(url, engine) for url, engine in engines.items()]
        late = {url: open_ for url, open_ in openers.items() if url not in engines}
        return Fleet(members, late, patience_s=settings.patience_s, watch_s=settings.watch_s)
    except BaseException:
        await asyncio.gather(*(engine.close() for engine in (await _opened(tasks)).values()))
        raise


async def _first_open(tasks: Iterable[asyncio.Future[ServerEngine]]) -> None:
    """Return LATE_S seconds after the first server is open, or once all have succeeded or failed.

    Raises the first error of a server that answers.
    """
    pending, until = set(tasks), None
    now = asyncio.get_running_loop().time
    while pending:
        left = None if until is None else max(0.0, until - now())
        done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return
        for task in done:
            error = task.exception()
            if error is None:
                until = until or now() + LATE_S
            elif not isinstance(error, NobodyAnswers):
                raise error


async def _opened(tasks: Mapping[str, asyncio.Future[ServerEngine]]) -> dict[str, ServerEngine]:
    """The open engines. Those that are not open yet are given up."""
    for task in tasks.values():
        task.cancel()
    found = await asyncio.gather(*tasks.values(), return_exceptions=True)
    return {url: each for url, each in zip(tasks, found, strict=True) if isinstance(each, ServerEngine)}


class Fleet:
    """Implements `port.Engine`. Make it inside the event loop that uses it; it closes its members.

    A version is loaded into every server before it is the oldest that serves, so any server may take any
    request; the one that has read the prompt's prefix is preferred. A server that is away is left out, and
    its responses go on elsewhere.
    """

    def __init__(
        self,
        members: Sequence[Member],
        late: Mapping[str, Open] | None = None,
        *,
        patience_s: float,
        watch_s: float,
    ) -> None:
        """`late`: how to open further servers, by name. They join once they answer, if they match the others.

        SettingError with both names if the members serve different models.
        """
        self.facts, self.capabilities = shared(members)
        self._members, self._patience_s, self._watch_s = list(members), patience_s, watch_s
        self._rolling = Rolling(self._members, dtype=self.facts.dtype, changed=self._notify)
        self._prefixes = Prefixes()
        self._changed = asyncio.Event()
        self._closed = False
        self._late = dict.fromkeys(late or {}, "it has not answered yet")
        """Why each further server has not joined, by name."""
        self._tasks = [asyncio.create_task(self._watch())]
        self._tasks += [asyncio.create_task(self._join(*each)) for each in (late or {}).items()]

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
        """Steps as a server streams them; after its death from another one, which reads all ids again."""
        self._check_open()
        check_fits(request, self.facts)
        response = self._members[0].engine.begun(request, self.facts)
        weights, adapter = request.weights, request.adapter if request.weights is Weights.LIVE else SHARED
        interruptions = Interruptions(self._check_open)
        while True:
            member = await self._chosen(request.prompt_ids, weights, adapter)
            with interruptions.tolerated(), member.busy():
                async with aclosing(member.engine.rest(response, weights, adapter)) as steps:
                    async for step in steps:
                        yield step
                        if step.ended:
                            return

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """All rows by one server, so by one version; by another server if it dies meanwhile."""
        self._check_open()
        check_scores(rows, top, self.facts, self.capabilities)
        interruptions = Interruptions(self._check_open)
        while True:
            member = await self._chosen(rows[0].prompt_ids if rows else (), weights, SHARED)
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
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._notify()
        await asyncio.gather(*(member.engine.close() for member in self._members))

    async def _chosen(self, prompt: Sequence[int], weights: Weights, adapter: str) -> Member:
        """The server that takes a request: the one with the prompt's prefix, unless it is too busy, else the
        idlest. EngineUnavailable if none can within `patience_s` seconds."""
        ids, oldest = (weights, adapter, *prompt), self._rolling.of(adapter).oldest
        try:
            async with asyncio.timeout(self._patience_s):
                while not (able := [each for each in self._members if each.out(oldest, adapter) is None]):
                    self._check_open()
                    await self._changed.wait()
                    oldest = self._rolling.of(adapter).oldest
        except TimeoutError as error:
            reason = self._outs() or "servers with the newest weights are away"
            raise EngineUnavailable(f"{reason} (a request waited {self._patience_s:g} s)") from error
        self._check_open()
        member = min(able, key=lambda each: (each.under_way, each.begun))
        home = self._prefixes.home(ids)
        if home in able and home.under_way - member.under_way < MOST_AHEAD:
            member = home
        self._prefixes.read(ids, member)
        return member

    def _serving(self) -> bool:
        return any(member.out(self._rolling.of(SHARED).oldest) is None for member in self._members)

    def _outs(self) -> str:
        """Why servers are out, by their names; empty if none is."""
        oldest = self._rolling.of(SHARED).oldest
        reasons = {member.name: member.out(oldest) for member in self._members}
        out = {name: reason for name, reason in reasons.items() if reason is not None} | self._late
        words = "; ".join(f"{name}: {reason}" for name, reason in out.items())
        every = len(self._members) + len(self._late)
        return f"{len(out)} of {every} servers are out: {words}" if out else ""

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _watch(self) -> None:
        """Bring servers that are back up to date."""
        while True:
            try:
                await self._rolling.catch_up()
            except AfterwitError as error:
                log.warning("the fleet: %s", error)
            except Exception:  # a fault of our own must not end the watch: no server would come back
                log.exception("watching the fleet failed")
            self._notify()
            await asyncio.sleep(self._watch_s)

    async def _join(self, name: str, open_: Open) -> None:
        """Wait for a further server. It gets the live weights before it serves."""
        while True:
            try:
                engine = await open_()
                try:
                    self._check_joins(Member(name, engine))
                except BaseException:
                    await engine.close()
                    raise
            except NobodyAnswers:
                continue
            except AfterwitError as error:
                if self._late[name] != str(error):
                    log.warning("the fleet: %s", error)
                self._late[name] = str(error)
                await asyncio.sleep(RETRY_S)
            else:
                del self._late[name]
                self._members.append(Member(name, engine))
                self._notify()
                log.info("the server at %s has joined the fleet", name)
                return

    def _check_joins(self, member: Member) -> None:
        """SettingError if a server has another model, or can do less than the fleet promised at its start."""
        facts, can = shared([self._members[0], member])
        if facts.context_length < self.facts.context_length:
            raise SettingError(
                f"the context of {member.name} is {facts.context_length} ids, but the fleet began "
                f"with {self.facts.context_length}: start that server with as much, or Afterwit again "
                "with it there"
            )
        if (lacks := can.lacks(self.capabilities)) is not None:
            raise SettingError(
                f"{member.name} supports less than the fleet began with ({lacks}): start that server with "
                "the same flags, or Afterwit again with it there"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnavailable("The engine was closed.")


class Prefixes:
    """The server that has read the prefix of a prompt, for the latest prompts."""

    def __init__(self) -> None:
        self._homes: OrderedDict[int, Member] = OrderedDict()

    def home(self, ids: Sequence[object]) -> Member | None:
        """The server of the longest earlier prompt that these ids begin with, by whole blocks."""
        return next((self._homes[key] for key in reversed(_hashes(ids)) if key in self._homes), None)

    def read(self, ids: Sequence[object], member: Member) -> None:
        """A server reads a prompt."""
        if hashes := _hashes(ids[:-LOOSE]):
            self._homes[hashes[-1]] = member
            self._homes.move_to_end(hashes[-1])
        if len(self._homes) > MOST_PREFIXES:
            self._homes.popitem(last=False)


def _hashes(ids: Sequence[object]) -> list[int]:
    """Of the first 1, 2, ... whole blocks."""
    found: list[int] = []
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        found.append(hash((found[-1] if found else 0, tuple(ids[start : start + BLOCK]))))
    return found


def shared(members: Sequence[Member]) -> tuple[Facts, Capabilities]:
    """The facts and capabilities of all, with the shortest context.

    SettingError with both names if two serve different models or report log-probs of different distributions.
    """
    first, *others = members
    ours, can = first.engine.facts, first.engine.capabilities
    for other in others:
        theirs = other.engine.facts
        for name in MODEL:
            if (one := getattr(ours, name)) != (two := getattr(theirs, name)):
                raise SettingError(
                    f"the servers of engine.url differ: {name} is {one} at {first.name}, but {two} at "
                    f"{other.name}; start all with the same model and --dtype"
                )
        one, two = (each.engine.proof.logprobs[1.0] for each in (first, other))
        apart, limit = gap(one, two), most(ours.dtype)
        if not apart <= limit:
            raise SettingError(
                f"the servers of engine.url do not serve the same weights: of the same ids the log-probs at "
                f"{first.name} and {other.name} differ by {apart:.2g} on average, and at most {limit:g} is "
                "right; start all with the same model"
            )
        if (basis := other.engine.capabilities.basis) is not can.basis:
            raise SettingError(
                f"log-probs are {can.basis.value} at {first.name}, but {basis.value} at {other.name}: start "
                "the servers of engine.url with the same flags"
            )
    context_length = min(each.engine.facts.context_length for each in members)
    return replace(ours, context_length=context_length), common([m.engine.capabilities for m in members])
