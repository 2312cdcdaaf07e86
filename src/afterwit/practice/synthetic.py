"""Requests that the base writes in a person's place, for practice.

The model is sampled where a person's message would begin, after the instructions and tools of a recorded
conversation (Magpie, arXiv:2406.08464). A lesson that is practised on such requests too is learned for other
requests than the few that were recorded; and where the policy has come to garble what it should only copy,
the base shows it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import takewhile

from afterwit.chat_format.render import RESULT_END, Renderer
from afterwit.engines.port import Engine, Generate, Weights
from afterwit.errors import RequestError
from afterwit.judging.hinted_prompts import recites
from afterwit.turn import SYSTEM, Conversation, Message, Sampling, Turn
from afterwit.vetting.redaction import Redaction

KNOWN = 24
"""Requests that are written before any is used: enough to find the words that most requests share."""
ENOUGH = 4 * KNOWN
"""Requests that are written to find whether a word belongs to one conversation alone."""
MOST_KNOWN = 512
"""The newest requests of some instructions that are remembered."""
AT_ONCE = 4
"""Requests that are sampled at the same time: as many as practised answers, so that others wait no longer."""
TRIES = 2
"""Samples for each request that is wanted: some do not end, or are empty."""
MOST_TOKENS = 256
TEMPERATURE = 0.8
"""Below 1, at which small models garble many requests."""
PLACEHOLDER = "zq0request0qz"
SHORTEST = 8
"""Characters."""
MOST_PREFIXES = 64
"""Instructions whose requests are remembered."""


class SyntheticRequests:
    """Requests by the instructions and tools that they follow. None comes again while the model writes new
    ones; all stay known."""

    def __init__(self, engine: Engine, renderer: Renderer, redaction: Redaction) -> None:
        self._engine, self._renderer, self._redaction = engine, renderer, redaction
        self._unused: dict[tuple[int, ...], deque[str]] = {}
        self._known: dict[tuple[int, ...], deque[str]] = {}

    async def take(self, like: Turn, count: int) -> tuple[list[Turn], Sequence[str]]:
        """At most `count` turns with requests in the place of this turn's messages, and the requests that are
        known. Fewer if the model writes few different ones here, or none.

        Raises EngineError if the engine fails.
        """
        prefix = await asyncio.to_thread(self._prefix, like.conversation)
        if not prefix:
            return [], ()
        if prefix not in self._known:
            if len(self._known) >= MOST_PREFIXES:
                self._known.clear()
                self._unused.clear()
            first = await self._new(prefix, KNOWN, ())
            self._known[prefix], self._unused[prefix] = deque(first, maxlen=MOST_KNOWN), deque(first)
        known, unused = self._known[prefix], self._unused[prefix]
        if len(unused) < count:
            more = await self._new(prefix, count - len(unused), known)
            known.extend(more)
            unused.extend(more)
            while known and len(unused) < count:  # the oldest come again
                known.rotate(-1)
                unused.append(known[-1])
        taken = [unused.popleft() for _ in range(min(count, len(unused)))]
        return [replace(like, conversation=_asking(like.conversation, text)) for text in taken], tuple(known)

    async def more(self, like: Turn) -> list[str]:
        """More requests by the instructions of a turn whose requests were taken; none if there are enough, or
        the model writes no others, or none at all here. Raises EngineError if the engine fails."""
        prefix = await asyncio.to_thread(self._prefix, like.conversation)
        if not prefix:
            return []
        known, unused = self._known[prefix], self._unused[prefix]
        new = await self._new(prefix, min(KNOWN, ENOUGH - len(known)), known)
        known.extend(new)
        unused.extend(new)
        return new

    async def _new(self, prefix: tuple[int, ...], count: int, known: Collection[str]) -> list[str]:
        """About `count` requests that are not known; fewer if TRIES samples for each bring no more."""
        found = dict[str, None]()
        for _ in range(0, TRIES * count, AT_ONCE):
            written = await asyncio.gather(*(self._written(prefix) for _ in range(AT_ONCE)))
            found |= dict.fromkeys(text for text in written if text and text not in known)
            if len(found) >= count:
                break
        return list(found)

    def _prefix(self, conversation: Conversation) -> tuple[int, ...]:
        """The ids before a person's message; () if the template shows none, or they leave no room for it."""
        try:
            text = self._renderer.text(_asking(conversation, PLACEHOLDER))
        except RequestError:
            return ()
        before, found, _ = text.rpartition(PLACEHOLDER)
        ids = self._renderer.encode(before) if found else ()
        return ids if len(ids) + MOST_TOKENS <= self._engine.facts.context_length else ()

    async def _written(self, prefix: tuple[int, ...]) -> str:
        """A request; empty if the model wrote none that may be used."""
        can = self._engine.capabilities
        asked = Generate(
            prompt_ids=prefix,
            sampling=Sampling(max_tokens=MOST_TOKENS, temperature=TEMPERATURE),
            weights=Weights.BASE if can.base_weights else Weights.LIVE,
            background=True,
        )
        ids, ended = list[int](), None
        async with aclosing(self._engine.generate(asked)) as steps:
            async for step in steps:
                ids += step.ids
                ended = step.ended
        silent = self._renderer.silent_ids
        text = self._renderer.decode([each for each in ids if each not in silent]).strip()
        message = Message(role="user", content=text)
        marks = (call.begin for call in self._renderer.convention.calls if call.begin)
        writes_marks = RESULT_END.search(text) or any(mark in text for mark in marks)
        if ended != "stop" or len(text) < SHORTEST or writes_marks or recites(message):
            return ""
        return "" if self._redaction.in_message(message) else text


def _asking(conversation: Conversation, request: str) -> Conversation:
    """The conversation's instructions and tools with this request alone."""
    instructions = takewhile(lambda message: message.role in SYSTEM, conversation.messages)
    asked = Message(role="user", content=request)
    return replace(conversation, messages=(*instructions, asked), lessons="")
