"""SGLang as a teacher: the log-probs of a prompt's ids from its response on, by any SGLang server."""

from __future__ import annotations

from pathlib import Path

from afterwit.core.errors import EngineError
from afterwit.core.teacher import Ids, TeacherScores
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.fitness.tokenizer import same_tokens
from afterwit.engines.sglang.inspect import server_info
from afterwit.engines.sglang.reading import logprob_of
from afterwit.engines.sglang.server import GENERATE


class SglangTeacher:
    """Implements `teacher.TeacherWire` with the model that the server has without adapter."""

    def __init__(self, client: ServerClient, *, context_length: int) -> None:
        self._client = client
        self.context_length = context_length

    @classmethod
    async def find(cls, client: ServerClient, folder: Path, *, k: int) -> SglangTeacher:
        """The teacher. SettingError if the server is too old or has another tokenizer."""
        info = await server_info(client)
        tokens = await same_tokens(client, folder, info["model_path"])
        found = cls(client, context_length=info["max_req_input_len"])
        await found.score(tokens[:2], tokens[2:4], k=k)
        return found

    async def score(self, prompt: Ids, response: Ids, *, k: int) -> TeacherScores:
        body = {
            "input_ids": [*prompt, *response],
            "sampling_params": {"max_new_tokens": 0},
            "return_logprob": True,
            "logprob_start_len": len(prompt) - 1,  # the first place told has no log-prob
            "top_logprobs_num": k,
        }
        meta = (await self._client.post(GENERATE, body)).json["meta_info"]
        rows, tops = meta["input_token_logprobs"][1:], meta["input_top_logprobs"][1:]
        if not len(rows) == len(tops) == len(response):
            raise EngineError(f"the server scored {len(rows)} ids in place of {len(response)}")
        ordered = [sorted((-each[0], each[1]) for each in top)[:k] for top in tops]
        return TeacherScores(
            sampled=tuple(logprob_of(row, token) for row, token in zip(rows, response, strict=True)),
            ids=tuple(tuple(token for _, token in top) for top in ordered),
            logprobs=tuple(tuple(-value for value, _ in top) for top in ordered),
        )
