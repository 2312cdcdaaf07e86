"""The client of vLLM: its protocol, a server's features, and the command that starts one.

The protocol: ids in, ids and log-probs out, adapters and whole weights. Missing features are listed with
the flag that enables each.
"""

from __future__ import annotations

import asyncio
import base64
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

from afterwit.engines.model_files import weights_of
from afterwit.engines.port import TopLogprobs, schema_refused
from afterwit.engines.server.client import Refused, ServerClient, failed, gathered
from afterwit.engines.server.inspect import (
    MOST_SCORED,
    TOP,
    Fit,
    basis_of,
    dtype_of,
    require_same_model,
    require_version,
    same_tokens,
    target_modules,
)
from afterwit.engines.server.replica import OURS
from afterwit.engines.server.server import (
    CHECK_S,
    UNLOAD_S,
    SampleRequest,
    Server,
    ServerCommand,
    StreamChunk,
    amplified,
    end_named,
    joined,
    sampling_params,
    top_logprobs,
    unfit,
)
from afterwit.engines.server.settings import Swap, VllmSettings
from afterwit.errors import EngineError, EngineUnavailable, SettingError
from afterwit.turn import Basis

GENERATE = "/inference/v1/generate"
BACKGROUND = 1
"""vLLM serves lower priorities first; people's requests have 0."""
REFUSED = 400
NOTHING = -9999.0
"""vLLM's substitute for -inf, which JSON lacks."""
CALL = 16
"""Tokens of a prompt that cost about as much as one such call."""
AT_ONCE = 8
"""Concurrent calls for one response."""
BIAS = 100.0
"""The most that the server adds to a logit."""
ZEROS = f"{OURS}base-"
"""Begins the name of an adapter that is scaled to nothing, as which the base is requested.

The CPU build of 0.32 computes the base with whatever adapter is in its last place. No server reports its
device, so all get one.
"""

Next = Callable[[Sequence[int], dict[str, Any]], Awaitable[list[tuple[int, float]]]]
"""(ids, sampling parameters) to log-probs of the next id, the sampled one first."""


class VllmServer(Server):
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
            "stream_options": {"include_usage": True},
        }
        if request.schema is not None:
            body["reasoning_ended"] = True  # a part of its own: the schema holds from the first id on
        if self._priorities and request.background:
            body["priority"] = BACKGROUND
        try:
            last: StreamChunk | None = None
            async with aclosing(self._client.events(GENERATE, body)) as reads:
                async for events in reads:
                    for chunk in joined(_chunk(event, request) for event in events if not _is_usage(event)):
                        if chunk.ended:
                            last = chunk
                        else:
                            yield chunk
                    if last is not None and _is_usage(events[-1]):  # it follows the end at once
                        yield replace(last, cached=_cached(events[-1]))
                        return
            if last is not None:
                yield last
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
            return _pairs(sampled)

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
            raise unfit("adapter", like, error) from error

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
            raise unfit("weights", folder, error) from error
        finally:
            await self._client.post("/resume")

    async def close(self) -> None:
        if self._zeros and self._zeros == self._loaded_zeros:
            await self.forget(self._zeros)
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


def _pairs(row: Mapping[str, Any]) -> list[tuple[int, float]]:
    """A sampled id and its alternatives with their log-probs; the id may be among these again."""
    return [(each["token_id"], _value(each["logprob"])) for each in (row, *row["top_logprobs"])]


def _value(logprob: float) -> float:
    return -math.inf if logprob <= NOTHING else logprob


def _chunk(event: Mapping[str, Any], request: SampleRequest) -> StreamChunk:
    """EngineError if the server reports a fault in the middle of a response."""
    if "error" in event:
        error = event["error"]
        if request.schema is not None and error.get("code") == REFUSED:
            raise schema_refused(str(error.get("message")))
        raise failed(GENERATE, error)
    choice = event["choices"][0]
    content, top = (choice["logprobs"] or {}).get("content") or (), request.top
    rows = () if top is None else content
    return StreamChunk(
        ids=tuple(choice["token_ids"]),
        logprobs=tuple(each["logprob"] for each in content),
        tops=tuple(top_logprobs(each["token_id"], _pairs(each), top or 0) for each in rows),
        ended=end_named(choice["finish_reason"]),
    )


def _is_usage(event: Mapping[str, Any]) -> bool:
    return event.get("choices") == []


def _cached(event: Mapping[str, Any]) -> int | None:
    """Prompt tokens that were in the prefix cache; None if the server does not count them."""
    details = event["usage"].get("prompt_tokens_details") or {}
    found: int | None = details.get("cached_tokens")
    return found


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
    from numpy.lib.format import read_array

    table = read_array(BytesIO(base64.b64decode(answer)), allow_pickle=False)
    shape = (len(at), max(map(len, at), default=0))
    if table.dtype != "float32" or table.ndim != 2 or len(table) != shape[0] or table.shape[1] < shape[1]:
        raise ValueError(
            f"the server's rows are {table.shape} of {table.dtype}, but {shape} of float32 are needed"
        )
    return [tuple(row[: len(ids)].tolist()) for row, ids in zip(table, at, strict=True)]


OLDEST = (0, 32)
"""The oldest version of vLLM with all features used here."""
WORKER = Path(__file__).with_name("worker")
EXTENSION, GUARD = "afterwit_vllm.Reload", "afterwit_guard.Guard"
SAMPLES = "--enable-scale-out"
"""The flag that every server needs: it accepts ids."""
DEV_MODE = "VLLM_SERVER_DEV_MODE=1 in its environment"
RUNTIME_LORA = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment"
RELOAD = f"--worker-extension-cls {EXTENSION}, with PYTHONPATH={WORKER} in its environment"
NO_ADAPTER = "/afterwit/asks/whether/adapters/can/be/loaded"
CACHES = b'enable_prefix_caching="True"'
WIDTHS = (MOST_SCORED, 50, 20, TOP)
"""Numbers of most likely ids per position to request, the largest first."""
QUIET = {"VLLM_NO_USAGE_STATS": "1"}
"""vLLM reports its usage to its makers otherwise."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values of `--max-lora-rank`."""
ADAPTERS = 5
"""Adapters in use at once: the base's, the live one, a staged one and its scaled copy, one of responses."""


async def inspect(client: ServerClient, folder: Path, swap: Swap | None, *, any_weights: bool = False) -> Fit:
    """The server. SettingError lists everything that is missing for the model in `folder`.

    With `any_weights` only the tokenizer must be the folder's.
    """
    version = await version_of(client)
    if version is None:
        raise SettingError(f"the server at {client.url} is not a vLLM server: it has no /version")
    require_version(version, OLDEST, url=client.url, label="vLLM")
    models = (await client.get("/v1/models")).json["data"]
    base = next(each for each in models if not each.get("parent"))
    model, root, context_length = base["id"], base["root"], base["max_model_len"]
    if not any_weights:
        await asyncio.to_thread(require_same_model, folder, root, url=client.url)
    tokens = await same_tokens(client, folder, root, named={"model": model})
    if missing := [flag async for flag in _missing(client, folder, model, swap)]:
        raise SettingError(f"the vLLM server at {client.url} must be started with {'; and '.join(missing)}")

    async def top_at(temperature: float) -> list[float]:
        answer = (await client.post(GENERATE, _body(model, tokens, temperature=temperature))).json
        (row,) = answer["choices"][0]["logprobs"]["content"]
        return [each["logprob"] for each in row["top_logprobs"] if each["rank"] <= TOP]

    async def accepts(body: Mapping[str, Any]) -> bool:
        return (await client.ask("POST", GENERATE, body)).status == 200

    basis, config = await basis_of(top_at), await _config(client)
    metrics = await client.ask("GET", "/metrics")
    schema = _body(model, tokens, structured_outputs={"json": '{"const": 7}'}) | {"reasoning_ended": True}
    given = {"max_tokens": 1, **given_params([(1,)], 1)}
    return Fit(
        server=VllmServer(
            client,
            model=model,
            root=root,
            priorities=await accepts(_body(model, tokens) | {"priority": BACKGROUND}),
            labels=(await client.ask("GET", "/weight_info")).status == 200,
            caches=metrics.status == 200 and CACHES in metrics.body,
            raw=basis is Basis.RAW,
            zeros=next((each["id"] for each in models if each["id"].startswith(ZEROS)), None),
        ),
        swap=swap,
        basis=basis,
        context_length=context_length,
        scored_ids=await _scored_ids(client, model, tokens),
        constraint=await accepts(schema),
        dtype=str(config["model_config"]["dtype"]).removeprefix("torch.") if config else None,
        scores_given=await accepts({"model": model, "token_ids": [1, 1], "sampling_params": given}),
    )


async def version_of(client: ServerClient) -> str | None:
    answer = await client.ask("GET", "/version")
    said = answer.json.get("version") if answer.status == 200 and isinstance(answer.json, Mapping) else None
    return None if said is None else str(said)


async def _missing(client: ServerClient, folder: Path, model: str, swap: Swap | None) -> AsyncIterator[str]:
    # a single id crashes the CPU build of 0.32 if the model has linear attention
    answer = await client.ask("POST", GENERATE, _body(model, (1, 1)))
    if answer.status in (403, 404):
        yield SAMPLES
    elif answer.status == 400 and "logprobs" in answer.message:
        yield f"--max-logprobs {TOP} or more"
    elif answer.status != 200:
        raise SettingError(f"the vLLM server at {client.url} does not sample: {answer.message}")
    if swap == "adapters":
        body = {"lora_name": "afterwit-asks", "lora_path": NO_ADAPTER}
        answer = await client.ask("POST", "/v1/load_lora_adapter", body)
        if answer.status != 200 and NO_ADAPTER not in answer.message:
            routed = answer.status != 404 and answer.status != 405
            yield "--enable-lora" if routed else f"--enable-lora, and {RUNTIME_LORA}"
        lora = (await _config(client)).get("lora_config")
        if lora and not lora["target_modules"] and (restriction := target_modules(folder)):
            yield " ".join(restriction)
    if swap == "whole":
        if (await client.ask("GET", "/weight_info")).status != 200:
            yield DEV_MODE
        if (await client.ask("POST", "/collective_rpc", {"method": "afterwit_ping"})).status != 200:
            yield RELOAD


async def _config(client: ServerClient) -> Mapping[str, Any]:
    """The server's configuration; {} without development mode, in which it does not report it."""
    answer = await client.ask("GET", "/server_info?config_format=json")
    if answer.status != 200:
        return {}
    found: Mapping[str, Any] = answer.json["vllm_config"]
    return found


async def _scored_ids(client: ServerClient, model: str, tokens: Sequence[int]) -> int:
    """The first of WIDTHS that the server accepts, or the limit in its refusal."""
    for width in WIDTHS:
        answer = await client.ask("POST", GENERATE, _body(model, tokens, prompt_logprobs=width))
        if answer.status == 200:
            return width
        if (named := re.search(r"max allowed: (\d+)", answer.message)) is not None:
            return int(named[1])
    return 0


def _body(model: str, tokens: Sequence[int], **params: Any) -> dict[str, Any]:
    fixed = {"max_tokens": 1, "temperature": 1.0, "logprobs": TOP, "seed": 0, "detokenize": False}
    return {"model": model, "token_ids": list(tokens), "sampling_params": fixed | params, "priority": 0}


def command(
    folder: Path, settings: VllmSettings, *, lora_rank: int, more: Sequence[str] = (), **address: Any
) -> ServerCommand:
    """The command line and environment variables. SettingError if no flag makes room for the rank."""
    needed = ("--dtype", dtype_of(folder, settings), *flags(folder, settings, lora_rank=lora_rank), *more)
    own = environment(settings)
    return ServerCommand.of(settings, ("serve", str(folder)), needed, environment=own, **address)


def flags(folder: Path, settings: VllmSettings, *, lora_rank: int) -> tuple[str, ...]:
    """The flags that the engine needs, however the server is started.

    The projections are named because a server that might adapt the head too dies when it scores a prompt
    while another request runs.
    """
    needed = (
        SAMPLES,
        *("--logprobs-mode", "processed_logprobs"),
        *("--scheduling-policy", "priority"),
        *("--structured-outputs-config.backend", "guidance"),
        "--enable-prompt-tokens-details",
    )
    if settings.swap == "whole":
        return (*needed, "--worker-extension-cls", EXTENSION, "--middleware", GUARD)
    room = next((rank for rank in RANKS if rank >= lora_rank), None)
    if room is None:
        raise SettingError(f"learner.lora_rank is {lora_rank}, but vLLM has room for {RANKS[-1]} at most")
    adapters = ("--enable-lora", "--max-lora-rank", str(room), "--max-loras", str(ADAPTERS))
    return (*needed, *adapters, *target_modules(folder))


def environment(settings: VllmSettings) -> dict[str, str]:
    """The environment variables that the engine needs, added to those that the server inherits."""
    if settings.swap == "whole":
        return QUIET | {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": str(WORKER)}
    return QUIET | {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
