"""People who share a server, each with a key: they ask, complain or thank, and hear what was learned."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from openai import AsyncOpenAI, AuthenticationError

from afterwit.gateway.auth import hash_key
from afterwit.lifecycle import State
from afterwit.running.serve import Runtime
from tests.journey.conftest import client, until

SAID = ("No: you never read the file. Please read it first.", "Please be shorter.", "Wrong file.")
PROBED = {"role": "user", "content": "What does notes/todo.txt say?"}


@dataclass(frozen=True, slots=True)
class Person:
    """A person with a key."""

    name: str
    agent: AsyncOpenAI

    async def teach(self, number: int, headers: Mapping[str, str] | None = None) -> str:
        """Ask something, and say what was wrong with the answer; the id of the turn that learns from it."""
        asked = {"role": "user", "content": f"{self.name} asks number {number}"}
        first = await self._say([asked], headers, seed=number)
        said = {"role": "assistant", "content": first.choices[0].message.content}
        reply = {"role": "user", "content": SAID[number % len(SAID)]}
        await self._say([asked, said, reply], headers, max_tokens=1)
        return str(first.id.removeprefix("chatcmpl-"))

    async def hears(self, headers: Mapping[str, str] | None = None) -> tuple[str, list[float]]:
        """The version that answers, and its log-probs of one answer to what everybody asks."""
        said = await self._say([PROBED], headers, max_tokens=4, temperature=0, logprobs=True)
        return said.system_fingerprint, [token.logprob for token in said.choices[0].logprobs.content]

    async def _say(self, messages: list, headers: Mapping[str, str] | None, **how: object):  # type: ignore[no-untyped-def,type-arg]
        fields = {"max_tokens": 8, **how}
        return await self.agent.chat.completions.create(
            model="afterwit",
            messages=messages,
            extra_headers=dict(headers or {}),
            **fields,  # type: ignore[arg-type]
        )


async def person(runtime: Runtime, name: str) -> Person:
    """A new person, with a key of this name."""
    assert runtime.url is not None
    key = f"aw-{name}"
    await runtime.store.call(
        lambda store: store.add_key(name, {"chat", "teach"}, hash_key(key), now=time.time())
    )
    agent, stranger = client(runtime.url, key), client(runtime.url, "aw-nobody")

    async def known() -> bool | None:
        """Keys are read again every moment. Until there are any, every caller of this machine is let in."""
        return (not await _is_refused(agent) and await _is_refused(stranger)) or None

    await until(known)
    return Person(name, agent)


async def _is_refused(agent: AsyncOpenAI) -> bool:
    try:
        await agent.models.list()
    except AuthenticationError:
        return True
    return False


async def newer(someone: Person, than: str) -> tuple[str, list[float]]:
    """The answer that a person gets once the version is another one."""

    async def heard() -> tuple[str, list[float]] | None:
        found = await someone.hears()
        return found if found[0] != than else None

    return await until(heard)


async def trained(runtime: Runtime, turns: list[str]) -> bool | None:
    """True once all these turns have trained."""
    states = await asyncio.gather(
        *(runtime.store.call(lambda store, turn=turn: store.turn(turn).state) for turn in turns)
    )
    return True if set(states) == {State.TRAINED} else None
