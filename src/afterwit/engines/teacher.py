"""A vLLM or SGLang server as the teacher. The kind of server is detected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from afterwit.engines.port import Ids, Scored
from afterwit.engines.server.client import ServerClient, answered, gathered, server_faults
from afterwit.engines.server.inspect import Fit
from afterwit.engines.sglang import server as sglang
from afterwit.engines.vllm import server as vllm
from afterwit.errors import EngineError, SettingError
from afterwit.objective.settings import ObjectiveSettings

AT_ONCE = 8
"""Concurrent rows: a server that also serves people has other work."""
DISTILS = ("token_opd", "topk_opd")
"""Names of the terms that read only a few of a teacher's ids per position."""
MARGIN = 4
"""Ids beyond those that learn: the update's own pass has other shapes, and may swap ids of equal rank."""
LEAST_IDS = 20
"""Fewest ids per position to ask the server for: they convert its scores to the turn's temperature. With
SmolLM2-135M, on text that is hard for it, the result is off by 0.013 nats at 0.6."""


class ServedTeacher:
    """Implements `teacher.TeacherServer` with the model that the server has without adapter.

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
        """`folder` is the policy's model: the server must have its tokenizer. `k` is the number of most
        likely ids per position, `given` that of other ids to score there.

        `silence_s`: seconds without a byte after which the server counts as gone. `patience_s`: seconds that
        `open` waits for a first answer.
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

        async def look() -> int:
            async with self._server(patient=True) as fit:
                return fit.context_length - 1  # it samples one token itself

        try:
            self._context_length = asyncio.run(look())
        except EngineError as error:
            raise SettingError(f"the teacher's server at {self._url} cannot be used: {error}") from error

    def score(
        self, rows: Sequence[tuple[Ids, Ids]], at: Sequence[Sequence[Ids]] | None = None
    ) -> list[Scored]:
        wanted = [()] * len(rows) if at is None else at

        async def scored() -> list[Scored]:
            async with self._server() as fit:
                calls = [partial(self._scored, fit, *row, ids) for row, ids in zip(rows, wanted, strict=True)]
                return await gathered(calls, AT_ONCE)

        return asyncio.run(scored())

    async def _scored(self, fit: Fit, prompt: Ids, response: Ids, at: Sequence[Ids]) -> Scored:
        ids, first = (*prompt, *response), len(prompt)
        found = await fit.server.top_logprobs(ids, None, first=first, top=self._k)
        asked = tuple(await fit.server.logprobs_at(ids, None, first=first, at=at)) if at else ()
        return Scored.of(found, 0, asked_ids=tuple(at), asked=asked)

    @asynccontextmanager
    async def _server(self, *, patient: bool = False) -> AsyncIterator[Fit]:
        """The server at the address, which may be another one each time."""
        client = ServerClient(self._url, key=self._key, silence_s=self._silence_s)
        try:
            async with server_faults(partial(client.get, "/health")):
                if patient:
                    await answered(client, label="teacher's", patience_s=self._patience_s)
                yield await self._fit(client)
        finally:
            await client.close()

    async def _fit(self, client: ServerClient) -> Fit:
        if await sglang.server_info(client) is not None:
            fit = await sglang.inspect(client, self._folder, None, any_weights=True)
        elif await vllm.version_of(client) is not None:
            fit = await vllm.inspect(client, self._folder, None, any_weights=True)
        else:
            raise SettingError(f"the server at {self._url} is neither a vLLM nor an SGLang server")
        if (most := fit.capabilities.scored_ids) < (needed := max(self._k, self._given)):
            raise SettingError(
                f"the teacher's server at {self._url} returns {most} ids per position, but "
                f"{needed} are needed: start it with --max-logprobs {needed} or more"
            )
        if self._given and not fit.scores_given:
            raise SettingError(
                f"the teacher's server at {self._url} does not score the student's ids, which "
                'objective.subset = "student" reads: set objective.subset = "teacher" or "overlap", or '
                'objective.objective = "token_opd", or learner.teacher = "base"'
            )
        return fit


def require_servable(objective: ObjectiveSettings) -> None:
    """SettingError unless the objective reads only a few of a teacher's ids per position.

    A server does not return the whole distribution.
    """
    if not objective.needs_teacher or objective.terms.get("opd") in DISTILS:
        return
    raise SettingError(
        f"objective.objective is {objective.objective!r}, which a teacher on a server (learner.teacher = "
        '"server") cannot teach, because it returns only a few ids per position: set objective.objective = '
        '"hybrid" or "token_opd", or learner.teacher = "base"'
    )


def given_ids(objective: ObjectiveSettings) -> int:
    """The number of the student's ids that a teacher scores per position, if any; not every server can."""
    top_k = objective.needs_teacher and objective.terms.get("opd") == "topk_opd"
    return objective.ids_kept + MARGIN if top_k and objective.subset == "student" else 0


def teacher_top_k(objective: ObjectiveSettings) -> int:
    """The number of its own most likely ids that a teacher returns per position."""
    return max(objective.ids_kept, given_ids(objective), LEAST_IDS)
