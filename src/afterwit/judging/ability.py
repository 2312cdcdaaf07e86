"""Finds out what the judge can do before it judges, and reads replies where it can do nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from math import fsum

import orjson
from pydantic import TypeAdapter

from afterwit import __version__
from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Engine, Score, Weights
from afterwit.errors import EngineError, EngineUnavailable, JudgeRefused, RequestError
from afterwit.judging import polarity
from afterwit.judging.exam import EXAM, TRIES, Ability, Case, Mark, better
from afterwit.judging.polarity import UNREAD, Borders, LogProbs, Reading
from afterwit.judging.questions import JudgePrompts
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.verdicts import JudgeClient
from afterwit.store import AsyncStore, Store
from afterwit.turn import Conversation, Message

NOTE = "judge_ability"
LONGEST_READ = 1000
"""Characters of a reply that are read."""
SHORT = 256
"""Tokens of an answer to a probe."""
AT_ONCE = 32
"""Replies in one call of the engine."""


class ReplyReader:
    """Reads whether replies complain, by log-probs of the served model: its frozen weights if it has any."""

    def __init__(self, engine: Engine, renderer: Renderer) -> None:
        self._engine, self._renderer = engine, renderer
        self._weights = Weights.BASE if engine.capabilities.base_weights else Weights.LIVE

    async def measured(self) -> Borders | None:
        """The borders on the shipped replies; None if the engine cannot score them.

        Raises EngineUnavailable if it does not answer now.
        """
        if not self._engine.capabilities.scored_ids:
            return None
        try:
            shipped = {kind: await self.logprobs(said) for kind, said in polarity.replies().items()}
        except EngineUnavailable:
            raise
        except (EngineError, RequestError):
            return None
        return await asyncio.to_thread(polarity.borders, shipped)

    async def logprobs(self, said: Sequence[str]) -> list[LogProbs]:
        """For each reply, the log-probs of the messages that `asked` lists.

        Raises EngineError, or RequestError if one does not render.
        """
        found: list[LogProbs] = []
        for at in range(0, len(said), AT_ONCE):
            rows = [await asyncio.to_thread(self._rows, reply) for reply in said[at : at + AT_ONCE]]
            flat = [row for each in rows for row in each]
            scored = await self._engine.score(flat, top=1, weights=self._weights)
            sums = iter([fsum(each.logprobs) for each in scored])
            found += [tuple(islice(sums, len(each))) for each in rows]
        return found

    def _rows(self, reply: str) -> list[Score]:
        rows = []
        for before, text in polarity.asked(reply[:LONGEST_READ]):
            # a person's and an assistant's messages in turn
            messages = tuple(
                Message(role="assistant" if at % 2 else "user", content=said)
                for at, said in enumerate(before)
            )
            conversation = Conversation(messages=messages, template_args={"enable_thinking": False})
            prompt_ids = self._renderer.prompt_ids(conversation)
            rows.append(Score(prompt_ids=prompt_ids, response_ids=self._renderer.encode(text)))
        return rows


class Examiner:
    """Examines the judge once and keeps its ability in the store."""

    def __init__(
        self,
        store: AsyncStore,
        client: JudgeClient,
        prompts: JudgePrompts,
        settings: JudgeSettings,
        reader: ReplyReader | None,
        *,
        judge: str,
    ) -> None:
        """`judge` is its name; a new name is examined again. Without a `reader`, replies are not read."""
        self._store, self._client, self._prompts, self._settings = store, client, prompts, settings
        self._reader = reader
        self._judge = f"{judge} {settings.thinking} {prompts.max_tokens} {__version__} {polarity.form()}"
        self._name = "This model" if settings.url is None else f"{settings.model} at {settings.url}"
        self._asking = asyncio.Lock()
        self.known: Ability | None = None
        self._told = asyncio.Event()

    @property
    def fault(self) -> str | None:
        """The judge's fault, in sentences; None if it has none, or before the examination."""
        return None if self.known is None else self.known.fault(self._name)

    async def told(self) -> str | None:
        """Wait until the ability is known; then its `fault`."""
        await self._told.wait()
        return self.fault

    async def ability(self) -> Ability:
        """The judge's ability.

        Raises JudgeUnavailable or EngineUnavailable if the judge or the engine does not answer.
        """
        async with self._asking:
            if self.known is None:
                self.known = await self._kept() or await self._examined()
                self._told.set()
            return self.known

    async def read(self, words: str) -> Reading:
        """How a person's words are to be taken. Raises EngineError if the model does not answer now."""
        found = self.known.borders if self.known is not None else None
        if found is None or not found.complaint.holds or self._reader is None or not words:
            return UNREAD
        try:
            (reply,) = await self._reader.logprobs([words])
        except RequestError:
            return UNREAD
        return found.read(reply)

    async def _examined(self) -> Ability:
        marks: tuple[Mark, ...] = ()
        for seed in range(TRIES):
            again = tuple(await asyncio.gather(*(self._mark(case, seed) for case in EXAM)))
            marks = better(marks, again) if marks else again
            if all(mark.right for mark in marks) or not any(mark.read for mark in marks):
                break
        ability = Ability(marks=marks)
        if not ability.hints and self._reader is not None:
            ability = Ability(marks=marks, borders=await self._reader.measured())
        note = {"judge": self._judge, "fault": ability.fault(self._name), **asdict(ability)}
        await self._store.call(lambda store: store.set_note(NOTE, orjson.dumps(note).decode()))
        return ability

    async def _mark(self, case: Case, seed: int) -> Mark:
        """Of a served model that need not think, a short answer is enough, unless it thinks all the same."""

        async def asked(max_tokens: int) -> Mark:
            messages, temperature = (
                self._prompts.messages(case.question, case.view),
                self._settings.temperature,
            )
            try:
                temperature = self._settings.temperature
                answer = await self._client.ask(
                    messages, temperature=temperature, max_tokens=max_tokens, seed=seed
                )
            except JudgeRefused as error:
                return Mark(case=case.name, read=False, right=False, refused=str(error))
            return case.marked(answer)

        whole = self._prompts.max_tokens
        if self._settings.url is not None or self._settings.thinking or whole <= SHORT:
            return await asked(whole)
        mark = await asked(SHORT)
        return await asked(whole) if mark.cut_thought else mark

    async def _kept(self) -> Ability | None:
        """The stored ability; None for an endpoint that could not judge: its model may have changed."""
        text = await self._store.call(lambda store: store.note(NOTE))
        data = None if text is None else orjson.loads(text)
        if data is None or data["judge"] != self._judge:
            return None
        ability = TypeAdapter(Ability).validate_python(data)
        return ability if ability.votes or self._settings.url is None else None


def fault_of(store: Store) -> str | None:
    """The fault of the judge that was examined last, in sentences; None if it has none."""
    text = store.note(NOTE)
    return None if text is None else orjson.loads(text)["fault"]
