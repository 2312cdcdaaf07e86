"""A vLLM or SGLang server as the teacher: which of them it is, is found out by asking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from afterwit.core.errors import EngineError, SettingError
from afterwit.core.teacher import Ids, TeacherScores
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.fitness.presence import answered
from afterwit.engines.sglang.inspect import is_sglang
from afterwit.engines.sglang.teacher import SglangTeacher
from afterwit.engines.vllm.inspect import is_vllm
from afterwit.engines.vllm.teacher import VllmTeacher

AT_ONCE = 8
"""Rows that are asked for at a time: a server that also serves people has other work."""
Found = TypeVar("Found")


class TeacherWire(Protocol):
    """One kind of server."""

    context_length: int

    async def score(self, prompt: Ids, response: Ids, *, k: int) -> TeacherScores:
        """The response's log-probs. EngineError if they cannot be had."""


class ServedTeacher:
    """Implements `core.teacher.TeacherServer`. For threads without an event loop."""

    def __init__(
        self, folder: Path, url: str, *, k: int, key: str | None, silence_s: float, patience_s: float
    ) -> None:
        """`folder` is the policy's model: the server's has its tokenizer. `k` ids of each place are told.

        `silence_s`: seconds without a byte after which the server counts as gone. `patience_s`: seconds that
        `open` waits for it to answer at all.
        """
        self._folder, self._url, self._k, self._key = folder, url, k, key
        self._silence_s, self._patience_s = silence_s, patience_s
        self._context_length: int | None = None

    @property
    def context_length(self) -> int:
        self.open()
        assert self._context_length is not None
        return self._context_length

    def open(self) -> None:
        if self._context_length is not None:
            return

        async def look(client: ServerClient) -> int:
            await answered(client, "/health", called="teacher's", patience_s=self._patience_s)
            return (await self._find(client)).context_length

        try:
            self._context_length = self._with_client(look)
        except EngineError as error:
            raise SettingError(f"the teacher's server at {self._url} cannot be used: {error}") from error

    def score(self, rows: Sequence[tuple[Ids, Ids]]) -> list[TeacherScores]:
        async def all_of(client: ServerClient) -> list[TeacherScores]:
            wire, free = await self._find(client), asyncio.Semaphore(AT_ONCE)

            async def one(prompt: Ids, response: Ids) -> TeacherScores:
                async with free:
                    return await wire.score(prompt, response, k=self._k)

            return await asyncio.gather(*(one(prompt, response) for prompt, response in rows))

        return self._with_client(all_of)

    async def _find(self, client: ServerClient) -> TeacherWire:
        """Each time anew: another server may answer at the address by now."""
        if await is_sglang(client):
            return await SglangTeacher.find(client, self._folder, k=self._k)
        if await is_vllm(client):
            return await VllmTeacher.find(client, self._folder, k=self._k)
        raise SettingError(f"the server at {self._url} is neither a vLLM nor an SGLang server")

    def _with_client(self, ask: Callable[[ServerClient], Awaitable[Found]]) -> Found:
        async def asked() -> Found:
            client = ServerClient(self._url, key=self._key, silence_s=self._silence_s)
            try:
                return await ask(client)
            finally:
                await client.close()

        return asyncio.run(asked())
