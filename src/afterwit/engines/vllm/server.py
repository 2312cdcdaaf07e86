"""vLLM's wire: ids in, ids and log-probs out, adapters and whole weights."""

from __future__ import annotations

import ast
import asyncio
import base64
import math
import struct
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from afterwit.engines.model_files import weights_of
from afterwit.engines.port import TopLogprobs
from afterwit.engines.server.client import Refused, ServerClient, failed, gathered
from afterwit.engines.server.replica import OURS, amplified
from afterwit.engines.server.server import (
    CUT,
    SampleRequest,
    StreamChunk,
    joined,
    sampling_params,
    schema_refused,
    top_logprobs,
)
from afterwit.errors import EngineError, EngineUnavailable, SettingError

GENERATE = "/inference/v1/generate"
CHECK_S = 30.0
UNLOAD_S = 10.0
BACKGROUND = 1
"""vLLM serves lower priorities first; people's requests have 0."""
REFUSED = 400
NOTHING = -9999.0
"""vLLM's substitute for -inf, which JSON lacks."""
ENDS = {"stop": "stop", "length": "length"}
CALL = 16
"""Tokens of a prompt that cost about as much as one such call."""
AT_ONCE = 8
"""Concurrent calls for one response."""
BIAS = 100.0
"""The most that the server adds to a logit."""
MAGIC = b"\x93NUMPY"
ZEROS = f"{OURS}base-"
"""Begins the name of an adapter that is scaled to nothing, as which the base is requested.

The CPU build of 0.32 computes the base with whatever adapter is in its last place. No server says what it
runs on, so all get one.
"""

Next = Callable[[Sequence[int], dict[str, Any]], Awaitable[list[tuple[int, float]]]]
"""(ids, sampling parameters) to log-probs of the next id, the sampled one first."""


class VllmServer:
    """Implements `server.Server`."""

    def __init__(
        self,
        client: ServerClient,
        *,
        model: str,
        root: str,
        priorities: bool,
        labels: bool,
        caches: bool = False,
        raw: bool = False,
        zeros: str | None = None,
    ) -> None:
        """`model` is the name of the model without adapter, `root` the place that the server read it from.

        `priorities`: accepts them. `labels`: reports the label of its weights. `caches`: has a prefix cache.
        `raw`: its log-probs are of the model's own distribution. `zeros`: an adapter of ZEROS that another
        engine has loaded.
        """
        self._client, self._model, self._root = client, model, root
        self._priorities, self._labels, self._caches, self._raw = priorities, labels, caches, raw
        self._zeros, self._loaded_zeros = zeros, ""
        self._folder = ExitStack()
        """The folder of an adapter that was loaded from here, which the server may read again."""

    async def check(self) -> str | None:
        await self._client.get("/health", within_s=CHECK_S)
        zeros = self._zeros
        models = (await self._client.get("/v1/models", within_s=CHECK_S)).json["data"]
        if not any((each["id"], each["root"]) == (self._model, self._root) for each in models):
            found = ", ".join(each["root"] for each in models if not each.get("parent"))
            raise SettingError(
                f"the server at {self._client.url} now serves another model: {found}, not {self._root}"
            )
        names = [each["id"] for each in models]
        if zeros == self._zeros and zeros not in names:  # a restarted server has lost it
            self._zeros = next((name for name in names if name.startswith(ZEROS)), None)
        if not self._labels:
            return None
        label: str = (await self._client.get("/weight_info", within_s=CHECK_S)).json["weight_version"]
        return label

    async def sample(self, request: SampleRequest) -> AsyncGenerator[StreamChunk, None]:
        name = self._name(request.weights)
        body: dict[str, Any] = {
            "model": name,
            "token_ids": request.prompt_ids,
            "sampling_params": params_of(request),
            "stream": True,
        }
        if request.schema is not None:
            body["reasoning_ended"] = True  # a part of its own: the schema holds from the first id on
        if self._priorities and request.background:
            body["priority"] = BACKGROUND
        try:
            async with aclosing(self._client.events(GENERATE, body)) as reads:
                async for events in reads:
                    for chunk in joined(_chunk(event, request) for event in events):
                        yield chunk
        except Refused as error:
            if request.schema is not None and error.answer.status == REFUSED:
                raise schema_refused(error.answer.message) from error
            raise self._without_adapter(error, name) from error

    async def score(self, ids: Sequence[int], weights: str | None) -> list[float]:
        rows = (await self._one_more(ids, weights, {"prompt_logprobs": 0}))["prompt_logprobs"][1:]
        return [row[str(token)]["logprob"] for token, row in zip(ids[1:], rows, strict=True)]

    async def top_logprobs(
        self, ids: Sequence[int], weights: str | None, *, first: int, top: int
    ) -> list[TopLogprobs]:
        """vLLM computes `prompt_logprobs` without its prefix cache: for a short response after a long prompt,
        one call for each of its ids costs less than reading all ids again."""

        async def following(begun: Sequence[int], params: Mapping[str, Any]) -> list[tuple[int, float]]:
            answer = await self._one_more(begun, weights, {"ignore_eos": True, **params})
            (sampled,) = answer["choices"][0]["logprobs"]["content"]
            values = {sampled["token_id"]: sampled["logprob"]}
            values |= {each["token_id"]: each["logprob"] for each in sampled["top_logprobs"]}
            return [(each, _value(value)) for each, value in values.items()]

        if self._caches and CALL * (len(ids) - first) <= first:
            return await next_logprobs(following, ids, first=first, top=top, raw=self._raw)
        rows = (await self._one_more(ids, weights, {"prompt_logprobs": top}))["prompt_logprobs"][first:]
        return [prompt_logprobs(token, row, top) for token, row in zip(ids[first:], rows, strict=True)]

    async def logprobs_at(
        self, ids: Sequence[int], weights: str | None, *, first: int, at: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        answer = await self._one_more(ids, weights, given_params(at, first))
        return values_of(answer["prompt_token_id_logprobs"], at)

    async def _one_more(self, ids: Sequence[int], weights: str | None, params: Mapping[str, Any]) -> Any:
        """The answer to ids, after which one more is sampled."""
        fixed = {"max_tokens": 1, "temperature": 0.0, "detokenize": False}
        name = self._name(weights)
        body = {"model": name, "token_ids": list(ids), "sampling_params": {**fixed, **params}}
        try:
            return (await self._client.post(GENERATE, body)).json
        except Refused as error:
            raise self._without_adapter(error, name) from error

    async def load_adapter(self, name: str, folder: Path) -> None:
        if self._zeros is None:
            self._folder.close()
            zeros = ZEROS + uuid4().hex[:8]
            copy = await asyncio.to_thread(self._folder.enter_context, amplified(folder, zeros, 0.0))
            await self._load(zeros, copy, like=folder)
            self._zeros = self._loaded_zeros = zeros
        await self._load(name, folder, like=folder)

    async def _load(self, name: str, folder: Path, *, like: Path) -> None:
        try:
            await self._client.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        except Refused as error:
            raise EngineError(f"The adapter in {like} does not fit the served model: {error}") from error

    async def unload_adapter(self, name: str) -> None:
        await self._client.post("/v1/unload_lora_adapter", {"lora_name": name}, within_s=UNLOAD_S)

    async def load_weights(self, folder: Path, label: str) -> None:
        """The server pauses meanwhile, and resumes whatever happens."""
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
        if self._zeros and self._zeros == self._loaded_zeros:
            with suppress(EngineError):
                await self.unload_adapter(self._zeros)
        self._folder.close()
        await self._client.close()

    def _name(self, weights: str | None) -> str:
        return weights or self._zeros or self._model

    def _without_adapter(self, error: Refused, name: str) -> EngineError:
        """A server that no longer has an adapter was restarted."""
        if name != self._model and error.answer.status == 404:
            return EngineUnavailable(f"the server at {self._client.url} no longer has the adapter {name}")
        return error


def params_of(request: SampleRequest) -> dict[str, Any]:
    """The server's own end ids are ignored: ours are named. The server does not detokenise."""
    sampling = request.sampling
    params = sampling_params(request) | {
        "max_tokens": sampling.max_tokens,
        "top_k": 0 if sampling.greedy else sampling.top_k,
        "ignore_eos": True,
        "logprobs": request.top or 0,
        "detokenize": False,
    }
    if request.schema is not None:
        params["structured_outputs"] = {"json": request.schema}
    if sampling.seed is not None:
        params["seed"] = sampling.seed
    return params


def prompt_logprobs(token: int, row: Mapping[str, Any], top: int) -> TopLogprobs:
    """A row of `prompt_logprobs`: the `top` most likely ids and the token itself."""
    return top_logprobs(token, ((int(name), _value(each["logprob"])) for name, each in row.items()), top)


def _value(logprob: float) -> float:
    return -math.inf if logprob <= NOTHING else logprob


def _chunk(event: Mapping[str, Any], request: SampleRequest) -> StreamChunk:
    """EngineError if the server reports a fault in the middle of a response."""
    if "error" in event:
        error = event["error"]
        message = error.get("message")
        if request.schema is not None and error.get("code") == REFUSED:
            raise schema_refused(message)
        raise failed(GENERATE, error, f"the server failed in the middle of a response: {message}")
    choice = event["choices"][0]
    content = (choice["logprobs"] or {}).get("content") or ()
    tops: list[TopLogprobs] = []
    if request.top is not None:
        for each in content:
            others = ((other["token_id"], _value(other["logprob"])) for other in each["top_logprobs"])
            values = {each["token_id"]: each["logprob"]} | dict(others)
            tops.append(top_logprobs(each["token_id"], values.items(), request.top))
    reason = choice["finish_reason"]
    return StreamChunk(
        ids=tuple(choice["token_ids"]),
        logprobs=tuple(each["logprob"] for each in content),
        tops=tuple(tops),
        ended=None if reason is None else ENDS.get(reason, CUT),
    )


async def next_logprobs(
    ask: Next, ids: Sequence[int], *, first: int, top: int, raw: bool
) -> list[TopLogprobs]:
    """As `Server.top_logprobs`, by the prefix cache. `raw`: log-probs are reported as before a bias.

    The longest beginning is read first: the others are in the server's cache then. An id that is not among
    the most likely is requested with a bias that gives it nearly all of the mass. The likeliest id then loses
    the bias less the token's log-prob: log p = l - l' - bias, as long as p * exp(bias) is far above 1.
    """

    async def at(place: int) -> TopLogprobs:
        token, begun = ids[place], ids[:place]
        found = await ask(begun, {"logprobs": top})
        if token not in dict(found):
            biased = dict(await ask(begun, {"logprobs": 2, "logit_bias": {str(token): BIAS}}))
            best, logprob = found[0]
            found = [*found, (token, biased[token] if raw else logprob - biased[best] - BIAS)]
        return top_logprobs(token, found, top)

    last = await at(len(ids) - 1)
    return [*await gathered([partial(at, place) for place in range(first, len(ids) - 1)], AT_ONCE), last]


def given_params(at: Sequence[Sequence[int]], first: int) -> dict[str, Any]:
    """Sampling parameters that score the ids at[i] at position first + i."""
    return {"prompt_logprob_token_ids": [list(row) for row in at], "prompt_logprob_start": first - 1}


def values_of(answer: str, at: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
    """The log-probs in an answer: an array in NumPy's file format, in base 64. ValueError for any other."""
    data = base64.b64decode(answer)
    if not data.startswith(MAGIC):
        raise ValueError("the server's rows are not a NumPy table")
    wide = data[len(MAGIC)] > 1
    begin = len(MAGIC) + 2
    (size,) = struct.unpack_from("<I" if wide else "<H", data, begin)
    begin += 4 if wide else 2
    head = ast.literal_eval(data[begin : begin + size].decode("latin-1"))
    if head["descr"] != "<f4" or head["fortran_order"] or head["shape"][0] != len(at):
        raise ValueError(f"the server's rows are {head}, but {len(at)} rows of float32 are wanted")
    values, width = array("f", data[begin + size :]), head["shape"][1]
    return [tuple(values[place * width : place * width + len(row)]) for place, row in enumerate(at)]
