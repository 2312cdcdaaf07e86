"""Examines the judge: its ability before it judges, which is kept, and now and then what it has judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Protocol

import orjson
from pydantic import TypeAdapter

from afterwit import __version__
from afterwit.engines.port import Facts
from afterwit.errors import EngineError, EngineUnavailable, JudgeRefused, JudgeUnavailable, RequestError
from afterwit.judging import polarity
from afterwit.judging.checks import JudgeReport, judge_report, warnings
from afterwit.judging.exam import EXAM, TRIES, Ability, Case, Mark, better, sample
from afterwit.judging.polarity import RESULTS, UNREAD, Borders, LogProbs, Reading, Subject, borders
from afterwit.judging.settings import JudgeSettings, judge_prompts
from afterwit.judging.verdicts import JudgeClient
from afterwit.store import AsyncStore, Store
from afterwit.text import counted
from afterwit.worker import BackOff, Report, Signals, StageHealth, work

NOTE, SHARES = "judge_ability", "judge"
"""The store's notes that hold the ability, and the shares of the last check."""
JUDGE_CHECKS = "judge_checks"
NEWEST = 2000
"""Judged turns that a check reads."""
SHORT = 256
"""Tokens of an answer to a probe."""
AT_ONCE = 32
"""Texts that are read in one call."""
WELL = 0.9
"""Share of right votes from which on no reader can be better."""

Progress = Callable[[str, int, int], None]
"""Gets what is being done, and how many of how many are done."""


def silent(words: str, done: int, of: int) -> None:
    """Shows no progress."""


class Reader(Protocol):
    """Reads people's replies and tools' results."""

    @property
    def replies(self) -> Subject:
        """The questions by which it reads replies; results are read by those of RESULTS."""

    async def logprobs(self, texts: Sequence[str], subject: Subject) -> list[LogProbs]:
        """For each text, the log-probs of the messages that the subject lists.

        Raises EngineUnavailable or JudgeUnavailable if the model does not answer now, else EngineError,
        JudgeRefused or RequestError if it cannot read this.
        """


class Examination:
    """Examines a judge and those who can read in its place. Nothing is kept."""

    def __init__(
        self,
        client: JudgeClient,
        settings: JudgeSettings,
        readers: Sequence[Reader],
        facts: Facts | None = None,
    ) -> None:
        """Of `readers` the first that can read does. `facts` are the served model's, if there is one here."""
        self._client, self._prompts, self.settings = client, judge_prompts(settings), settings
        self.readers = readers
        self.name = name_of(settings)
        """The judge, as a sentence begins with it."""
        self.examined_as = examined_as(settings, facts)
        self.progress: Progress = silent

    async def ability(self) -> Ability:
        """The judge's ability. The readers are measured if it cannot judge, or not well.

        Raises JudgeUnavailable or EngineUnavailable if the judge or the engine does not answer.
        """
        found = Ability(mode=self.settings.mode)
        if found.mode != "read":
            found = replace(found, marks=await self._exam())
        if found.mode == "auto" and found.passed:
            marks = await self._marks(sample(), 0)
            found = replace(found, right=sum(mark.right for mark in marks), of=len(marks))
        if found.mode == "write" or (found.passed and found.right >= WELL * found.of):
            return found
        for at, reader in enumerate(self.readers):
            replies = await measured(reader, reader.replies, self.progress)
            read = replace(found, reader=at, replies=replies)
            found = read if read.reads or found.replies is None else found
            if read.reads:
                break
        if not found.votes and found.reads:
            results = await measured(self.readers[found.reader], RESULTS, self.progress)
            found = replace(found, results=results)
        return found

    async def _exam(self) -> tuple[Mark, ...]:
        marks: tuple[Mark, ...] = ()
        for seed in range(TRIES):
            again = await self._marks(EXAM, seed)
            marks = better(marks, again) if marks else again
            if all(mark.right for mark in marks) or not any(mark.read for mark in marks):
                break
        return marks

    async def _marks(self, cases: Sequence[Case], seed: int) -> tuple[Mark, ...]:
        room, done = asyncio.Semaphore(self.settings.max_concurrency), 0

        async def marked(case: Case) -> Mark:
            nonlocal done
            async with room:
                mark = await self._mark(case, seed)
            done += 1
            self.progress("asking about exchanges of known outcome", done, len(cases))
            return mark

        return tuple(await asyncio.gather(*map(marked, cases)))

    async def _mark(self, case: Case, seed: int) -> Mark:
        """Of a served model that need not think, a short answer is enough, unless it thinks all the same."""

        async def asked(max_tokens: int) -> Mark:
            messages = self._prompts.messages(case.question, case.view)
            temperature = self.settings.temperature
            try:
                answer = await self._client.ask(
                    messages, temperature=temperature, max_tokens=max_tokens, seed=seed
                )
            except JudgeRefused as error:
                return Mark(case=case.name, read=False, right=False, refused=str(error))
            return case.marked(answer)

        whole = self._prompts.max_tokens
        if self.settings.url is not None or self.settings.thinking or whole <= SHORT:
            return await asked(whole)
        mark = await asked(SHORT)
        return await asked(whole) if mark.cut_thought else mark


async def measured(reader: Reader, subject: Subject, progress: Progress = silent) -> Borders | None:
    """The borders on the shipped texts; None if the model cannot read them.

    Raises EngineUnavailable or JudgeUnavailable if it does not answer now.
    """
    shipped: dict[str, list[LogProbs]] = {kind: [] for kind in subject.texts}
    of = sum(map(len, subject.texts.values()))
    try:
        for kind, texts in subject.texts.items():
            for at in range(0, len(texts), AT_ONCE):
                progress(f"reading {subject.name} of known meaning", sum(map(len, shipped.values())), of)
                shipped[kind] += await reader.logprobs(texts[at : at + AT_ONCE], subject)
    except (EngineUnavailable, JudgeUnavailable):
        raise
    except (EngineError, JudgeRefused, RequestError):
        return None
    return await asyncio.to_thread(borders, shipped, subject.parts)


class Examiner:
    """Examines the judge once and keeps its ability in the store."""

    def __init__(self, store: AsyncStore, examination: Examination) -> None:
        self._store, self.examination = store, examination
        self._asking = asyncio.Lock()
        self.known: Ability | None = None
        self._told = asyncio.Event()

    @property
    def fault(self) -> str | None:
        """The judge's fault, in sentences; None if it has none, or before the examination."""
        return None if self.known is None else self.known.fault(self.examination.name)

    @property
    def examines(self) -> bool:
        """Whether the examination is under way."""
        return self._asking.locked()

    async def told(self) -> Ability:
        """Wait until the ability is known."""
        await self._told.wait()
        assert self.known is not None
        return self.known

    async def ability(self) -> Ability:
        """The judge's ability.

        Raises JudgeUnavailable or EngineUnavailable if the judge or the engine does not answer.
        """
        async with self._asking:
            if not await self.is_known():
                self.known = await self._examined()
                self._told.set()
            assert self.known is not None
            return self.known

    async def is_known(self) -> bool:
        """Whether the ability is known or stored, so that the judge need not be asked."""
        if self.known is None and (kept := await self._kept()) is not None:
            self.known = kept
            self._told.set()
        return self.known is not None

    async def read(self, text: str, *, of_tool: bool = False) -> Reading:
        """How a person's words are to be taken, or what a tool returned.

        Raises EngineError or JudgeUnavailable if the model does not answer now.
        """
        known = self.known or Ability()
        borders = known.results if of_tool else known.replies
        if borders is None or not borders.complaint.holds or not text:
            return UNREAD
        reader = self.examination.readers[known.reader]
        try:
            (found,) = await reader.logprobs([text], RESULTS if of_tool else reader.replies)
        except (RequestError, JudgeRefused):
            return UNREAD
        return borders.read(found)

    async def _examined(self) -> Ability:
        ability = await self.examination.ability()
        await self._store.call(lambda store: keep_ability(store, self.examination, ability))
        return ability

    async def _kept(self) -> Ability | None:
        """The stored ability; None if its reader is not in this process, and for an endpoint that could not
        judge: its model may have changed."""
        text = await self._store.call(lambda store: store.note(NOTE))
        data = None if text is None else orjson.loads(text)
        if data is None or data["judge"] != self.examination.examined_as:
            return None
        ability, settings = TypeAdapter(Ability).validate_python(data), self.examination.settings
        if ability.reads and ability.reader >= len(self.examination.readers):
            return None
        is_served = settings.client is None and settings.url is None
        return ability if is_served or ability.fault(self.examination.name) is None else None


def keep_ability(store: Store, examination: Examination, ability: Ability) -> None:
    """Keep what an examination found, so that the judge is not examined again."""
    fault, how = ability.fault(examination.name), ability.described()
    note = {"judge": examination.examined_as, "fault": fault, "how": how, **asdict(ability)}
    store.set_note(NOTE, orjson.dumps(note).decode())


def examined_as(settings: JudgeSettings, facts: Facts | None) -> str:
    """All that a judge's ability may depend on: if any of it changes, the judge is examined again."""
    if settings.client is not None or settings.url is not None:
        judge = f"{settings.client} {settings.model} at {settings.url}"
    else:
        judge = "" if facts is None else f"{facts.model} {facts.fingerprint} {settings.weights}"
    return f"{judge} {settings.mode} {settings.thinking} {__version__} {polarity.form()}"


def name_of(settings: JudgeSettings) -> str:
    """The judge, as a sentence begins with it."""
    if settings.client is not None:
        return f"The judge {settings.client}"
    return "This model" if settings.url is None else f"{settings.model} at {settings.url}"


def kept_words(store: Store) -> tuple[str | None, str | None]:
    """Of the judge that was examined last: its fault, and how it judges; None of what is not known."""
    note = orjson.loads(store.note(NOTE) or "{}")
    return note.get("fault"), note.get("how")


async def keep_checking(store: AsyncStore, signals: Signals, report: Report, *, every_s: float) -> None:
    """Wait, then check and report the judge's faults, until a stop signal."""

    async def step() -> bool:
        """Always False: the next check can wait."""
        found = await store.call(report_of)
        await store.call(lambda store: keep_shares(store, found.shares))
        wrong = list(warnings(found))
        fine = f"nothing is wrong in {counted(found.turns, 'judged turn')}"
        await report(not wrong, "; ".join(wrong) or fine)
        return False

    async def failed(ok: bool, message: str) -> None:
        if not ok:
            await report(ok, message)

    await signals.rest(every_s)
    if not signals.stop.is_set():
        back_off = BackOff(base_s=every_s, max_s=10 * every_s)
        health = StageHealth(JUDGE_CHECKS, failed)
        await work(step, signals=signals, health=health, poll_s=every_s, back_off=back_off)


def report_of(store: Store) -> JudgeReport:
    """Over the newest judged turns."""
    unable, how = kept_words(store)
    return judge_report(store.judged_turns(limit=NEWEST), unable=unable, how=how)


def keep_shares(store: Store, shares: Mapping[str, float]) -> None:
    """Store the shares of a check over those of the one before."""
    store.set_note(SHARES, orjson.dumps(shares).decode())


def judge_shares(store: Store) -> Mapping[str, float]:
    """The shares that the last check found, by check; empty before the first."""
    note = store.note(SHARES)
    return {} if note is None else orjson.loads(note)
