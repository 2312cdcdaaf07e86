"""vLLM's wire: ids in, ids and log-probs out, adapters and whole weights."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from afterwit.core.errors import EngineError, EngineUnavailable, SettingError
from afterwit.core.turn import Sampling
from afterwit.engines.server.client import Refused, ServerClient
from afterwit.engines.server.server import CUT, Ask, Piece, Place, place_of
from afterwit.engines.server.swaps.tensors import weights_of

GENERATE = "/inference/v1/generate"
CHECK_S = 30.0
UNLOAD_S = 10.0
BACKGROUND = 1
"""vLLM serves lower numbers first; people's requests have 0."""
NOTHING = -9999.0
"""What vLLM writes in place of -inf, which JSON does not have."""
ENDS = {"stop": "stop", "length": "length"}


class VllmServer:
    """Implements `server.Server`."""

    def __init__(
        self, client: ServerClient, *, model: str, root: str, priorities: bool, labels: bool
    ) -> None:
        """`model` is the name of the model without adapter, `root` where the server read it from.

        `priorities`: the server takes them. `labels`: it says which weights it has.
        """
        self._client, self._model, self._root = client, model, root
        self._priorities, self._labels = priorities, labels

    async def check(self) -> str | None:
        await self._client.get("/health", within_s=CHECK_S)
        models = (await self._client.get("/v1/models", within_s=CHECK_S)).json
        base = next((each for each in models["data"] if each["id"] == self._model), None)
        if base is None or base["root"] != self._root:
            found = ", ".join(each["root"] for each in models["data"] if not each.get("parent"))
            raise SettingError(
                f"the server at {self._client.url} now serves another model: {found}, not {self._root}"
            )
        if not self._labels:
            return None
        label: str = (await self._client.get("/weight_info", within_s=CHECK_S)).json["weight_version"]
        return label

    async def sample(self, ask: Ask) -> AsyncGenerator[Piece, None]:
        body = {
            "model": ask.weights or self._model,
            "token_ids": ask.prompt_ids,
            "sampling_params": _params(ask.sampling, ask.end_ids),
            "stream": True,
        }
        if self._priorities and ask.background:
            body["priority"] = BACKGROUND
        try:
            async with aclosing(self._client.events(GENERATE, body)) as events:
                async for event in events:
                    yield _piece(event)
        except Refused as error:
            raise self._without_adapter(error, ask.weights) from error

    async def score(self, ids: Sequence[int], weights: str | None) -> list[float]:
        params = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0, "detokenize": False}
        body = {"model": weights or self._model, "token_ids": list(ids), "sampling_params": params}
        try:
            answer = (await self._client.post(GENERATE, body)).json
        except Refused as error:
            raise self._without_adapter(error, weights) from error
        rows = answer["prompt_logprobs"][1:]
        return [row[str(token)]["logprob"] for token, row in zip(ids[1:], rows, strict=True)]

    async def places(self, ids: Sequence[int], weights: str | None, *, first: int, top: int) -> list[Place]:
        params = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": top, "detokenize": False}
        body = {"model": weights or self._model, "token_ids": list(ids), "sampling_params": params}
        try:
            answer = (await self._client.post(GENERATE, body)).json
        except Refused as error:
            raise self._without_adapter(error, weights) from error
        rows = answer["prompt_logprobs"][first:]
        return [_place(token, row, top) for token, row in zip(ids[first:], rows, strict=True)]

    async def load_adapter(self, name: str, folder: Path) -> None:
        body = {"lora_name": name, "lora_path": str(folder)}
        try:
            await self._client.post("/v1/load_lora_adapter", body)
        except Refused as error:
            raise EngineError(f"The adapter in {folder} does not fit the served model: {error}") from error

    async def unload_adapter(self, name: str) -> None:
        await self._client.post("/v1/unload_lora_adapter", {"lora_name": name}, within_s=UNLOAD_S)

    async def load_weights(self, folder: Path, label: str) -> None:
        """The server stands still meanwhile, and goes on whatever happens."""
        await self._client.post("/pause?mode=abort")
        try:
            files = list(map(str, weights_of(folder)))
            await self._client.post("/collective_rpc", {"method": "afterwit_load", "args": [files]})
            await self._client.post("/reset_prefix_cache")
            await self._client.post("/update_weight_version", {"new_version": label})
        except Refused as error:
            raise EngineError(f"The weights in {folder} do not fit the served model: {error}") from error
        finally:
            await self._client.post("/resume")

    async def close(self) -> None:
        await self._client.close()

    def _without_adapter(self, error: Refused, weights: str | None) -> EngineError:
        """A server that knows an adapter no more was started anew."""
        if weights is not None and error.answer.status == 404:
            return EngineUnavailable(f"the server at {self._client.url} no longer has the adapter {weights}")
        return error


def _params(sampling: Sampling, end_ids: frozenset[int]) -> dict[str, Any]:
    """The server's own end ids are ignored: ours are named. Text is made here, not there."""
    greedy = sampling.greedy
    params: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": 0.0 if greedy else sampling.temperature,
        "top_p": 1.0 if greedy else sampling.top_p,
        "top_k": 0 if greedy else sampling.top_k,
        "min_p": 0.0 if greedy else sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "stop_token_ids": sorted(end_ids),
        "ignore_eos": True,
        "logprobs": 0,
        "detokenize": False,
    }
    if sampling.seed is not None:
        params["seed"] = sampling.seed
    if sampling.logit_bias:
        params["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    return params


def _place(token: int, row: Mapping[str, Any], top: int) -> Place:
    """The server tells the `top` likeliest and the id itself."""
    told = ((int(name), each["logprob"]) for name, each in row.items())
    return place_of(token, ((name, -math.inf if value <= NOTHING else value) for name, value in told), top)


def _piece(event: Mapping[str, Any]) -> Piece:
    """EngineError if the server reports a fault in the middle of a response."""
    if "error" in event:
        raise EngineError(f"the server failed in the middle of a response: {event['error'].get('message')}")
    choice = event["choices"][0]
    content = (choice["logprobs"] or {}).get("content") or ()
    reason = choice["finish_reason"]
    return Piece(
        ids=tuple(choice["token_ids"]),
        logprobs=tuple(each["logprob"] for each in content),
        ended=None if reason is None else ENDS.get(reason, CUT),
    )
