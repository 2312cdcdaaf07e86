"""A vLLM or SGLang server as the teacher: which of them it is, is found out by asking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from afterwit.engines.server.client import ServerClient, gathered
from afterwit.engines.server.inspect import answered, gone
from afterwit.engines.server.open import Fit
from afterwit.engines.sglang import inspect as sglang
from afterwit.engines.vllm import inspect as vllm
from afterwit.errors import EngineError, SettingError
from afterwit.teacher import Ids, TeacherScores

HEALTH = "/health"
AT_ONCE = 8
"""Rows that are asked for at a time: a server that also serves people has other work."""
Found = TypeVar("Found")


class ServedTeacher:
    """Implements `core.teacher.TeacherServer`, with the model that the server has without adapter.

    For threads without an event loop.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        *,
        k: int,
        given: int = 0,
        key: str | None,
        silence_s: float,
        patience_s: float,
    ) -> None:
        """`folder` is the policy's model: the server's has its tokenizer. `k` ids of each place are told;
        `given`: of how many other ids it is asked.

        `silence_s`: seconds without a byte after which the server counts as gone. `patience_s`: seconds that
        `open` waits for it to answer at all.
        """
        self._folder, self._url, self._k, self._given, self._key = folder, url, k, given, key
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

        async def look(client: ServerClient) -> Fit:
            await answered(client, HEALTH, called="teacher's", patience_s=self._patience_s)
            return await self._fit(client)

        try:
            self._context_length = self._with_client(look).context_length - 1  # it says one token itself
        except EngineError as error:
            raise SettingError(f"the teacher's server at {self._url} cannot be used: {error}") from error

    def score(
        self, rows: Sequence[tuple[Ids, Ids]], at: Sequence[Sequence[Ids]] | None = None
    ) -> list[TeacherScores]:
        wanted = [()] * len(rows) if at is None else at

        async def asked(client: ServerClient) -> list[TeacherScores]:
            try:
                fit = await self._fit(client)
                calls = [partial(self._scored, fit, *row, ids) for row, ids in zip(rows, wanted, strict=True)]
                return await gathered(calls, AT_ONCE)
            except EngineError as error:
                if (away := await gone(error, partial(client.get, HEALTH))) is None:
                    raise
                raise away from error

        return self._with_client(asked)

    async def _scored(self, fit: Fit, prompt: Ids, response: Ids, at: Sequence[Ids]) -> TeacherScores:
        ids = (*prompt, *response)
        places = await fit.server.places(ids, None, first=len(prompt), top=self._k)
        return TeacherScores(
            sampled=tuple(place.logprob for place in places),
            ids=tuple(place.top_ids for place in places),
            logprobs=tuple(place.top_logprobs for place in places),
            asked_ids=tuple(at),
            asked=tuple(await fit.server.given(ids, None, first=len(prompt), at=at)) if at else (),
        )

    async def _fit(self, client: ServerClient) -> Fit:
        """Each time anew: another server may answer at the address by now."""
        if await sglang.is_sglang(client):
            fit = await sglang.inspect(client, self._folder, None, any_weights=True)
        elif await vllm.is_vllm(client):
            fit = await vllm.inspect(client, self._folder, None, any_weights=True)
        else:
            raise SettingError(f"the server at {self._url} is neither a vLLM nor an SGLang server")
        if fit.scored_ids < (needed := max(self._k, self._given)):
            raise SettingError(
                f"the teacher's server at {self._url} tells {fit.scored_ids} ids of each place, but "
                f"{needed} are needed: start it with --max-logprobs {needed} or more"
            )
        if self._given and not fit.scores_given:
            raise SettingError(
                f"the teacher's server at {self._url} does not score the student's ids, which "
                'objective.subset = "student" reads: set objective.subset = "teacher" or "overlap", or '
                'objective.objective = "token_opd", or learner.teacher = "base"'
            )
        return fit

    def _with_client(self, ask: Callable[[ServerClient], Awaitable[Found]]) -> Found:
        async def asked() -> Found:
            client = ServerClient(self._url, key=self._key, silence_s=self._silence_s)
            try:
                return await ask(client)
            finally:
                await client.close()

        return asyncio.run(asked())
