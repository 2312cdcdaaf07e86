"""The engine over the server, or the servers, of one model.

A version is served by one server first, then by one after another while the others serve: any server may then
take any request. The publisher compares the first server's log-probs with the learner's. Each further server
must agree with the first one before it serves, and so must one that was away.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from tokenizers import Tokenizer

from afterwit.chat_format.folder import tokenizer_of
from afterwit.engines.llama_cpp import server as llama_cpp
from afterwit.engines.model_files import facts_of
from afterwit.engines.port import (
    CLOSED,
    Capabilities,
    Facts,
    Generate,
    Score,
    Scored,
    Step,
    Weights,
    check_fits,
    check_scores,
    common,
    require_staged,
)
from afterwit.engines.server.client import ServerClient, answered
from afterwit.engines.server.inspect import dtype_of, vocabulary_of
from afterwit.engines.server.replica import Loaded, Replica
from afterwit.engines.server.server import ServedResponse
from afterwit.engines.server.settings import AnyServer, LlamaCppSettings, Swap
from afterwit.engines.sglang import server as sglang
from afterwit.engines.vllm import server as vllm
from afterwit.errors import AfterwitError, EngineError, EngineUnavailable, NobodyAnswers, SettingError
from afterwit.turn import SHARED
from afterwit.weights.agreement import gap, most

LATE_S = 10.0
"""Seconds that further servers have to open once one is open. Later ones join while the fleet serves."""
RETRY_S = 60.0
"""Seconds until a server that does not fit, or did not accept the live weights, is tried again: a person has
to look at it."""
MOST_INTERRUPTIONS = 2
"""A request that brings its server down must not do so for ever."""
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

Open = Callable[[], Awaitable[Replica]]
"""Waits for the server some time. NobodyAnswers, or SettingError if it does not fit the model."""

log = logging.getLogger(__name__)


async def open_fleet(folder: Path, settings: AnyServer, *, takes_weights: bool) -> Fleet:
    """The engine over all servers of `engine.url`, of which one is enough to begin with.

    SettingError if one does not fit the model or lacks a flag, or if two serve different models;
    NobodyAnswers if none answers within `patience_s`. Without `takes_weights` they may lack the flags that
    only new weights need.
    """
    swap = settings.swap if takes_weights else None
    openers: dict[str, Open] = {
        url: partial(_open_replica, url, folder, settings, swap) for url in settings.urls
    }
    tasks = {url: asyncio.ensure_future(open_()) for url, open_ in openers.items()}

    async def opened() -> dict[str, Replica]:
        """The open ones. Those that are not open yet are given up."""
        for task in tasks.values():
            task.cancel()
        found = await asyncio.gather(*tasks.values(), return_exceptions=True)
        return {url: each for url, each in zip(tasks, found, strict=True) if isinstance(each, Replica)}

    try:
        pending, until, now = set(tasks.values()), None, asyncio.get_running_loop().time
        while pending:
            left = None if until is None else max(0.0, until - now())
            done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for task in done:
                if (error := task.exception()) is None:
                    until = until or now() + LATE_S
                elif not isinstance(error, NobodyAnswers):
                    raise error
        replicas = await opened()
        if not replicas:
            await tasks[settings.urls[0]]  # raises NobodyAnswers
        late = {url: open_ for url, open_ in openers.items() if url not in replicas}
        return Fleet([*replicas.values()], late, patience_s=settings.patience_s, watch_s=settings.watch_s)
    except BaseException:
        await asyncio.gather(*(replica.close() for replica in (await opened()).values()))
        raise


async def _open_replica(url: str, folder: Path, settings: AnyServer, swap: Swap | None) -> Replica:
    key, silence_s = settings.key(os.environ), settings.silence_s
    client = ServerClient(url, key=key, silence_s=silence_s, reuses=settings.reuses)
    try:
        await answered(client, label=settings.label, patience_s=settings.patience_s)
        if isinstance(settings, LlamaCppSettings):
            fit = await llama_cpp.inspect(client, folder, swap, settings=settings)
        else:
            inspect = vllm.inspect if settings.kind == "vllm" else sglang.inspect
            fit = await inspect(client, folder, swap)
        reported = fit.dtype if settings.dtype == "auto" else None
        facts = await asyncio.to_thread(
            facts_of,
            folder,
            kind=settings.kind,
            context_length=fit.context_length,
            vocabulary=vocabulary_of(folder),
            dtype=reported or dtype_of(folder, settings),
        )
        return await Replica.open(
            url, fit.server, folder, facts=facts, capabilities=fit.capabilities, swap=settings.swap
        )
    except EngineError as error:
        await client.close()
        raise SettingError(f"the {settings.label} server at {client.url} cannot be used: {error}") from error
    except BaseException:
        await client.close()
        raise


class Fleet:
    """Implements `port.Engine`. Make it inside the event loop that uses it; it closes its members.

    A request waits `patience_s` at most while no server can take it: all are away, or load new weights. An
    interrupted response goes on from its ids so far at any server, with the weights that are live then. The
    server that has read the prompt's prefix is preferred.
    """

    def __init__(
        self,
        members: Sequence[Replica],
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
        self._folder = members[0].folder
        self._live = {SHARED: Loaded(version=0, folder=self._folder)}
        """The live weights of each adapter, as the first server has them."""
        self._oldest: dict[str, int] = {}
        """The oldest version that still serves: below the live one while that is rolled out."""
        self._staging: Replica | None = None
        """The server that has loaded weights which no server serves."""
        self._one_at_a_time = asyncio.Lock()
        self._prefixes = Prefixes()
        self._changed = asyncio.Event()
        self._closed = False
        self._late = dict.fromkeys(late or {}, "it has not answered yet")
        """Why each further server has not joined, by name."""
        self._tasks = [asyncio.create_task(self._watch(member)) for member in members]
        self._tasks += [asyncio.create_task(self._join(*each)) for each in (late or {}).items()]

    @property
    def version(self) -> int:
        return self._live[SHARED].version

    def live(self, adapter: str) -> int | None:
        return self._live[adapter].version if adapter in self._live else None

    @property
    def fault(self) -> str | None:
        if self._closed:
            return CLOSED
        return None if self._able(SHARED) else self._outs()

    @property
    def reduced(self) -> str | None:
        return self._outs() or None if self._able(SHARED) else None

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """Steps as a server streams them; after its death from another one, which reads all ids again.

        Closing the generator ends the response there too.
        """
        self._check_open()
        check_fits(request, self.facts)
        response = ServedResponse(request, self.facts, self._text_of)
        weights, adapter = request.weights, request.adapter if request.weights is Weights.LIVE else SHARED
        interruptions = 0
        while True:
            replica = await self._chosen(request.prompt_ids, weights, adapter)
            try:
                async with aclosing(replica.rest(response, weights, adapter)) as steps:
                    async for step in steps:
                        yield step
                        if step.ended:
                            return
            except EngineUnavailable:
                self._check_open()
                if (interruptions := interruptions + 1) > MOST_INTERRUPTIONS:
                    raise

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """All rows by one server, so by one version; again if it dies or takes new weights meanwhile."""
        self._check_open()
        check_scores(rows, top, self.facts, self.capabilities)
        interruptions = 0
        while True:
            replica = await self._chosen(rows[0].prompt_ids if rows else (), weights, SHARED)
            try:
                return await replica.score(rows, top=top, weights=weights)
            except EngineUnavailable:
                self._check_open()
                if (interruptions := interruptions + 1) > MOST_INTERRUPTIONS:
                    raise

    async def stage(self, version: int, folder: Path, *, adapter: str = SHARED) -> None:
        """On the first server that answers."""
        folder = await asyncio.to_thread(folder.resolve)
        async with self._publishing():
            await self._drop_staged()
            away = EngineUnavailable(f"no server is there to take new weights: {self._outs()}")
            for replica in self._members:
                if replica.fault is None:
                    try:
                        await replica.stage(version, folder, adapter=adapter)
                    except EngineUnavailable as error:
                        away = error
                    else:
                        self._staging = replica
                        return
            raise away

    async def probe(self, ids: Sequence[int], *, times: float = 1.0) -> list[float]:
        async with self._publishing():
            return await require_staged(self._staging).probe(ids, times=times)

    async def promote(self) -> None:
        """On that server, then on one after another. A server that does not accept the weights stays out."""
        async with self._publishing():
            first = require_staged(self._staging)
            loaded = require_staged(first.staged)
            await first.promote()
            self._staging = None
            self._live[loaded.adapter] = loaded
            first.trouble.pop(loaded.adapter, None)
            self._notify()
            for replica in self._members:
                if replica is not first and replica.fault is None:
                    await self._give_live(replica, loaded.adapter)
            self._oldest[loaded.adapter] = loaded.version

    async def discard(self) -> None:
        async with self._publishing():
            await self._drop_staged()

    async def unload(self, adapter: str) -> None:
        """From every server; one that is away comes back without it."""
        async with self._one_at_a_time:
            if self._live.pop(adapter, None) is not None:
                self._oldest.pop(adapter, None)
                for replica in self._members:
                    replica.trouble.pop(adapter, None)
                    await replica.unload(adapter)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._notify()
        await asyncio.gather(*(replica.close() for replica in self._members))

    async def _chosen(self, prompt: Sequence[int], weights: Weights, adapter: str) -> Replica:
        """The server that takes a request: the one with the prompt's prefix, unless it is too busy, else the
        idlest. EngineUnavailable if none can within `patience_s` seconds."""
        try:
            async with asyncio.timeout(self._patience_s):
                while not (able := self._able(adapter)):
                    self._check_open()
                    await self._changed.wait()
        except TimeoutError as error:
            reason = self._outs() or "servers with the newest weights are away"
            raise EngineUnavailable(f"{reason} (a request waited {self._patience_s:g} s)") from error
        self._check_open()
        if len(self._members) == 1:
            return able[0]
        ids = (weights, adapter, *prompt)
        chosen, home = min(able, key=lambda each: (each.under_way, each.begun)), self._prefixes.home(ids)
        if home in able and home.under_way - chosen.under_way < MOST_AHEAD:
            chosen = home
        self._prefixes.read(ids, chosen)
        return chosen

    def _able(self, adapter: str) -> list[Replica]:
        oldest = self._oldest.get(adapter, 0)
        return [replica for replica in self._members if replica.out(oldest, adapter) is None]

    def _outs(self) -> str:
        """Why servers are out, by their names if there are several; empty if none is."""
        oldest = self._oldest.get(SHARED, 0)
        reasons = {replica.name: replica.out(oldest) for replica in self._members} | self._late
        out = {name: reason for name, reason in reasons.items() if reason is not None}
        if len(reasons) == 1:
            return "".join(out.values())
        words = "; ".join(f"{name}: {reason}" for name, reason in out.items())
        return f"{len(out)} of {len(reasons)} servers are out: {words}" if out else ""

    @asynccontextmanager
    async def _publishing(self) -> AsyncIterator[None]:
        self._check_open()
        async with self._one_at_a_time:
            try:
                yield
            finally:
                self._notify()

    async def _drop_staged(self) -> None:
        staging, self._staging = self._staging, None
        if staging is not None:
            with suppress(EngineUnavailable):
                await staging.discard()

    async def _give_live(self, replica: Replica, adapter: str) -> None:
        """The server must give the log-probs of the first one before it serves the weights."""
        live = self._live[adapter]
        try:
            await replica.stage(live.version, live.folder, adapter=adapter)
            score = partial(replica.probe, live.proof.ids)
            await live.proof.check(lambda times: score(times=times), self.facts.dtype)
            await replica.promote()
        except EngineError as error:
            if str(error) != replica.trouble.get(adapter, ("", 0.0))[0]:
                log.warning("the server at %s does not take the weights: %s", replica.name, error)
            pause_s = 0.0 if isinstance(error, EngineUnavailable) else RETRY_S
            replica.trouble[adapter] = str(error), asyncio.get_running_loop().time() + pause_s
            with suppress(EngineError):
                await replica.discard()
        else:
            replica.trouble.pop(adapter, None)
            log.info("the server at %s serves version %d", replica.name, live.version)

    async def _watch(self, replica: Replica) -> None:
        """Keep looking at a server. One that is back gets the live weights before it serves."""

        def lacks(adapter: str) -> bool:
            _, again = replica.trouble.get(adapter, ("", 0.0))
            late = replica.version(adapter) < self._oldest.get(adapter, 0)
            return late and replica.fault is None and replica.staged is None and again <= now()

        now = asyncio.get_running_loop().time
        while True:
            await replica.look()
            try:
                for adapter in filter(lacks, list(self._live)):
                    async with self._one_at_a_time:
                        if lacks(adapter):  # it may have changed meanwhile
                            await self._give_live(replica, adapter)
                            self._notify()
            except Exception:  # a fault of our own must not end the watch: no server would come back
                log.exception("watching the server at %s failed", replica.name)
            self._notify()
            replica.reported.clear()  # faults of this round are retried after a pause
            with suppress(TimeoutError):
                async with asyncio.timeout(self._watch_s):
                    await replica.reported.wait()

    async def _join(self, name: str, open_: Open) -> None:
        """Wait for a further server, then watch it. It gets the live weights before it serves."""
        while True:
            try:
                replica = await open_()
                try:
                    self._check_joins(replica)
                except BaseException:
                    await replica.close()
                    raise
            except NobodyAnswers:
                continue
            except AfterwitError as error:
                if self._late[name] != str(error):
                    log.warning("the fleet: %s", error)
                self._late[name] = str(error)
                await asyncio.sleep(RETRY_S)
            else:
                break
        del self._late[name]
        self._members.append(replica)
        log.info("the server at %s has joined the fleet", name)
        await self._watch(replica)

    def _check_joins(self, replica: Replica) -> None:
        """SettingError if a server has another model, or can do less than the fleet promised at its start."""
        facts, can = shared([self._members[0], replica])
        if facts.context_length < self.facts.context_length:
            raise SettingError(
                f"the context of {replica.name} is {facts.context_length} ids, but the fleet began "
                f"with {self.facts.context_length}: start that server with as much, or Afterwit again "
                "with it there"
            )
        if (lacks := can.lacks(self.capabilities)) is not None:
            raise SettingError(
                f"{replica.name} supports less than the fleet began with ({lacks}): start that server with "
                "the same flags, or Afterwit again with it there"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnavailable(CLOSED)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return tokenizer_of(self._folder)

    def _text_of(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text


class Prefixes:
    """The server that has read the prefix of a prompt, for the latest prompts."""

    def __init__(self) -> None:
        self._homes: OrderedDict[int, Replica] = OrderedDict()

    def home(self, ids: Sequence[object]) -> Replica | None:
        """The server of the longest earlier prompt that these ids begin with, by whole blocks."""
        return next((self._homes[key] for key in reversed(_hashes(ids)) if key in self._homes), None)

    def read(self, ids: Sequence[object], replica: Replica) -> None:
        if hashes := _hashes(ids[:-LOOSE]):
            self._homes[hashes[-1]] = replica
            self._homes.move_to_end(hashes[-1])
        if len(self._homes) > MOST_PREFIXES:
            self._homes.popitem(last=False)


def _hashes(ids: Sequence[object]) -> list[int]:
    """Of the first 1, 2, ... whole blocks."""
    found: list[int] = []
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        found.append(hash((found[-1] if found else 0, tuple(ids[start : start + BLOCK]))))
    return found


def shared(replicas: Sequence[Replica]) -> tuple[Facts, Capabilities]:
    """The facts and capabilities of all, with the shortest context.

    SettingError with both names if two serve different models or report log-probs of different distributions.
    """
    first, *others = replicas
    ours, can = first.facts, first.capabilities
    for other in others:
        for name in MODEL:
            if (one := getattr(ours, name)) != (two := getattr(other.facts, name)):
                raise SettingError(
                    f"the servers of engine.url differ: {name} is {one} at {first.name}, but {two} at "
                    f"{other.name}; start all with the same model and --dtype"
                )
        apart, limit = gap(first.proof.logprobs[1.0], other.proof.logprobs[1.0]), most(ours.dtype)
        if not apart <= limit:
            raise SettingError(
                f"the servers of engine.url do not serve the same weights: the log-probs of the same ids at "
                f"{first.name} and {other.name} differ by {apart:.2g} on average, and at most {limit:g} is "
                "allowed; start all with the same model"
            )
        if (basis := other.capabilities.basis) is not can.basis:
            raise SettingError(
                f"log-probs are {can.basis.value} at {first.name}, but {basis.value} at {other.name}: start "
                "the servers of engine.url with the same flags"
            )
    context_length = min(replica.facts.context_length for replica in replicas)
    return replace(ours, context_length=context_length), common([each.capabilities for each in replicas])
