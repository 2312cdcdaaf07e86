"""vLLM as a teacher: the log-probs of a prompt's ids, by the completions endpoint of any vLLM server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from afterwit.core.errors import EngineError, SettingError
from afterwit.core.teacher import Ids, TeacherScores
from afterwit.engines.server.client import Refused, ServerClient
from afterwit.engines.server.fitness.tokenizer import same_tokens
from afterwit.engines.vllm.inspect import base_model, require_version

SCORE = "/v1/completions"


class VllmTeacher:
    """Implements `teacher.TeacherWire` with the model that the server has without adapter."""

    def __init__(self, client: ServerClient, *, model: str, context_length: int) -> None:
        self._client, self._model = client, model
        self.context_length = context_length - 1  # it says one token more than it is asked to score

    @classmethod
    async def find(cls, client: ServerClient, folder: Path, *, k: int) -> VllmTeacher:
        """The teacher. SettingError if the server is too old, has another tokenizer or tells fewer ids."""
        await require_version(client)
        model, root, context_length = await base_model(client)
        tokens = await same_tokens(client, folder, root, named={"model": model})
        found = cls(client, model=model, context_length=context_length)
        try:
            await found.score(tokens[:2], tokens[2:4], k=k)
        except Refused as error:
            if "logprobs" not in error.answer.words:
                raise
            raise SettingError(
                f"the vLLM server at {client.url} must be started with --max-logprobs {k} or more: "
                f"{error.answer.words}"
            ) from error
        return found

    async def score(self, prompt: Ids, response: Ids, *, k: int) -> TeacherScores:
        body = {
            "model": self._model,
            "prompt": [*prompt, *response],
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": k,
        }
        rows = (await self._client.post(SCORE, body)).json["choices"][0]["prompt_logprobs"]
        told = [_by_id(row) for row in rows[len(prompt) :]]
        if len(told) != len(response):
            raise EngineError(f"the server scored {len(told)} ids in place of {len(response)}")
        top = [sorted(row, key=lambda token: (-row[token], token))[:k] for row in told]
        return TeacherScores(
            sampled=tuple(row[token] for row, token in zip(told, response, strict=True)),
            ids=tuple(map(tuple, top)),
            logprobs=tuple(tuple(row[token] for token in ids) for row, ids in zip(told, top, strict=True)),
        )


def _by_id(row: Mapping[str, Any]) -> dict[int, float]:
    """The log-probs of one place: of its top-K, and of the id that is there."""
    return {int(token): float(each["logprob"]) for token, each in row.items()}
