"""The client of SGLang: its protocol, a server's features, and the command that starts one.

The protocol: ids in, ids and log-probs out, adapters and whole weights. Missing features are listed with
the flag that enables each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from afterwit.chat_format.folder import end_ids, tokenizer_of
from afterwit.engines.port import TopLogprobs, schema_refused
from afterwit.engines.server.client import Refused, ServerClient, failed
from afterwit.engines.server.inspect import (
    MOST_SCORED,
    TOP,
    Fit,
    adapted_modules,
    basis_of,
    dtype_of,
    require_same_model,
    require_version,
    same_tokens,
    vocabulary_of,
)
from afterwit.engines.server.server import (
    CHECK_S,
    UNLOAD_S,
    SampleRequest,
    Server,
    ServerCommand,
    StreamChunk,
    end_named,
    joined,
    sampling_params,
    top_logprobs,
    unfit,
)
from afterwit.engines.server.settings import SglangSettings, Swap
from afterwit.errors import EngineError, EngineUnavailable, SettingError
from afterwit.turn import Sampling

GENERATE = "/generate"
POSITIONS = 32
"""Positions of one call that scores given ids. Each position's answer has the ids of all positions."""
IDLE_S = 60
"""Seconds until a server that aborts everything is idle."""
GRAMMAR = "grammar"
"""Occurs in the server's message about a schema that it cannot enforce."""
UNKNOWN_ADAPTER = ("never been loaded", "not loaded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Properties of one SGLang server that requests and answers depend on."""

    tokenizer: str
    """The place that it read its tokenizer from. It stays when weights change."""
    ends: frozenset[int]
    """The model's own end ids, at which it stops unless the request ignores them."""
    last: int
    """The last id of the vocabulary: the server scores it in a prompt, but reports it as 0."""
    incremental: bool
    """Each event of a stream holds only new ids; else all so far."""
    background: int | None
    """The priority of background requests, where people's have 0; None: priorities are off."""


class SglangServer(Server):
    """Implements `server.Server`."""

    def __init__(self, client: ServerClient, traits: Traits) -> None:
        self._client, self.traits = client, traits
        self._aborting: set[asyncio.Task[None]] = set()

    async def check(self) -> str | None:
        try:
            await self._client.get("/ready", within_s=CHECK_S)
        except EngineUnavailable:  # after a slow moment it stays unready until it generates a token
            await self._client.get("/health", within_s=CHECK_S)
        info = (await self._client.get("/model_info", within_s=CHECK_S)).json
        if info["tokenizer_path"] != self.traits.tokenizer:
            raise SettingError(
                f"the server at {self._client.url} was restarted with another model: "
                f"{info['tokenizer_path']}, not {self.traits.tokenizer}"
            )
        label: str = info["weight_version"]
        return label

    async def sample(self, request: SampleRequest) -> AsyncGenerator[StreamChunk, None]:
        rid, reader = uuid4().hex, Reader(request, self.traits.incremental)
        body: dict[str, Any] = {
            "rid": rid,
            "input_ids": request.prompt_ids,
            "sampling_params": params_of(request, self.traits.ends),
            "return_logprob": True,
            "return_sampling_mask": _truncates(request.sampling),
            "top_logprobs_num": request.top or 0,
            "stream": True,
        }
        if request.weights is not None:
            body["lora_path"] = request.weights
        if self.traits.background is not None:  # a request without one comes last of all
            body["priority"] = self.traits.background if request.background else 0
        try:
            async with aclosing(self._client.events(GENERATE, body)) as reads:
                async for events in reads:
                    for chunk in joined(map(reader.chunk, events)):
                        yield chunk
                        if chunk.ended:
                            return
        except Refused as error:
            raise _without_adapter(error, request.weights) from error
        finally:
            if not reader.ended:  # abort at once: the server notices a closed connection only seconds later
                task = asyncio.create_task(self._abort(rid))
                self._aborting.add(task)
                task.add_done_callback(self._aborting.discard)

    async def _abort(self, rid: str) -> None:
        with suppress(EngineError):
            await self._client.post("/abort_request", {"rid": rid}, within_s=UNLOAD_S)

    async def score(self, ids: Sequence[int], weights: str | None) -> list[float]:
        meta = await self._read(ids, weights, first=0)
        rows = meta["input_token_logprobs"][1:]  # the first id has no log-prob
        return [self._logprob(row, token) for row, token in zip(rows, ids[1:], strict=True)]

    async def top_logprobs(
        self, ids: Sequence[int], weights: str | None, *, first: int, top: int
    ) -> list[TopLogprobs]:
        # from one position earlier: the server returns no log-prob for the first position
        meta = await self._read(ids, weights, first=first - 1, top_logprobs_num=top)
        own, tops = meta["input_token_logprobs"][1:], meta["input_top_logprobs"][1:]
        return [
            top_logprobs(token, [*_pairs(others), (token, self._logprob(row, token))], top)
            for token, row, others in zip(ids[first:], own, tops, strict=True)
        ]

    async def logprobs_at(
        self, ids: Sequence[int], weights: str | None, *, first: int, at: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        """The server accepts one list of ids for all positions of a call: a few positions at a time."""
        found: list[tuple[float, ...]] = []
        for begin in range(0, len(at), POSITIONS):
            part, start = at[begin : begin + POSITIONS], first + begin
            wanted = sorted({each for row in part for each in row})
            read = ids[: start + len(part)]
            meta = await self._read(read, weights, first=start - 1, token_ids_logprob=wanted)
            for row, others in zip(part, meta["input_token_ids_logprobs"][1:], strict=True):
                values = dict(_pairs(others))
                found.append(tuple(float(values[token]) for token in row))
        return found

    async def _read(
        self, ids: Sequence[int], weights: str | None, *, first: int, **more: Any
    ) -> Mapping[str, Any]:
        body: dict[str, Any] = {
            "input_ids": list(ids),
            "sampling_params": {"max_new_tokens": 0},
            "return_logprob": True,
            "logprob_start_len": first,
            **more,
        }
        if weights is not None:
            body["lora_path"] = weights
        try:
            meta: Mapping[str, Any] = (await self._client.post(GENERATE, body)).json["meta_info"]
        except Refused as error:
            raise _without_adapter(error, weights) from error
        return meta

    def _logprob(self, row: Sequence[Any], token: int) -> float:
        """EngineError unless the row is of this id and has a number."""
        value, index = row[0], row[1]
        if value is None or not (index == token or (index == 0 and token == self.traits.last)):
            raise EngineError(f"the server scored id {index} in place of {token}")
        return float(value)

    async def load_adapter(self, name: str, folder: Path) -> None:
        try:
            await self._client.post("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        except Refused as error:
            raise unfit("adapter", folder, error) from error

    async def unload_adapter(self, name: str) -> None:
        await self._client.post("/unload_lora_adapter", {"lora_name": name}, within_s=UNLOAD_S)

    async def load_weights(self, folder: Path, label: str) -> None:
        """Responses of other programs end as well.

        Aborted ones may still take a step: the cache is flushed afterwards, once nothing runs.
        """
        body = {
            "model_path": str(folder),
            "abort_all_requests": True,
            "flush_cache": False,
            "weight_version": label,
        }
        try:
            await self._client.post("/update_weights_from_disk", body)
            await self._client.post(f"/flush_cache?timeout={IDLE_S}")
        except Refused as error:
            raise unfit("weights", folder, error) from error

    async def close(self) -> None:
        await asyncio.gather(*self._aborting)
        await self._client.close()


def _without_adapter(error: EngineError, weights: str | None) -> EngineError:
    """A server that no longer has an adapter was restarted."""
    if weights is not None and any(each in str(error) for each in UNKNOWN_ADAPTER):
        return EngineUnavailable(f"the server no longer has the adapter {weights}")
    return error


def _truncates(sampling: Sampling) -> bool:
    """Whether ids are cut off before sampling: by default the server reports log-probs from before that."""
    return sampling.truncated and not sampling.greedy


def _pairs(rows: Sequence[Sequence[Any]]) -> list[tuple[int, float]]:
    """Ids and log-probs, which the server sends the other way round."""
    return [(row[1], row[0]) for row in rows]


def params_of(request: SampleRequest, own: frozenset[int]) -> dict[str, Any]:
    """The server's own end ids are ignored unless all are ours. The server does not detokenise."""
    sampling = request.sampling
    params = sampling_params(request) | {
        "max_new_tokens": sampling.max_tokens,
        "top_k": -1 if sampling.greedy or sampling.top_k == 0 else sampling.top_k,
        "ignore_eos": not own <= request.end_ids,
    }
    if request.schema is not None:
        params["json_schema"] = request.schema
    if sampling.seed is not None:
        params["sampling_seed"] = sampling.seed
    return params


class Reader:
    """Reads the events of one response. `ended`: the server has finished it."""

    def __init__(self, request: SampleRequest, incremental: bool) -> None:
        self._request, self._incremental = request, incremental
        self._column = "output_token_sampling_logprobs" if _truncates(request.sampling) else None
        self._read = 0
        self.ended = False

    def chunk(self, event: Mapping[str, Any]) -> StreamChunk:
        """EngineError if the server reports a fault in place of the rest; RequestRefused if it ends the
        response because of its schema."""
        request = self._request
        if "error" in event:
            self.ended = True
            self._check_schema(str(event["error"].get("message")))
            raise _without_adapter(failed(GENERATE, event["error"]), request.weights)
        meta = event["meta_info"]
        rows = self._new(meta["output_token_logprobs"])
        ids = tuple(row[1] for row in rows)
        logprobs = tuple(self._new(meta[self._column]) if self._column else [row[0] for row in rows])
        tops: tuple[TopLogprobs, ...] = ()
        if request.top is not None:
            found = self._new(meta["output_top_logprobs"]) if request.top else [()] * len(rows)
            tops = tuple(
                top_logprobs(row[1], _pairs([*others, row]), request.top)
                for row, others in zip(rows, found, strict=True)
            )
        self._read += len(ids)
        reason = meta["finish_reason"]
        self.ended = reason is not None
        if reason is not None and reason["type"] == "abort":
            self._check_schema(str(reason.get("message")))
        ended = end_named(reason and reason["type"])
        cached = meta.get("cached_tokens")
        chunk = StreamChunk(ids=ids, logprobs=logprobs, tops=tops, ended=ended, cached=cached)
        return chunk.up_to(request.end_ids)  # the server may have sampled beyond an end id

    def _new(self, column: list[Any]) -> list[Any]:
        return column if self._incremental else column[self._read :]

    def _check_schema(self, message: str) -> None:
        if self._request.schema is not None and GRAMMAR in message:
            raise schema_refused(message)


OLDEST = (0, 5, 23)
"""The oldest version of SGLang with all features used here."""
ADAPTED = frozenset(
    (
        *("all", "q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "gate_proj", "up_proj", "down_proj"),
        *("gate_up_proj", "q_a_proj", "kv_a_proj_with_mqa", "q_b_proj", "kv_b_proj"),
    )
)
"""The values of `--lora-target-modules` that are a decoder's projections."""


async def inspect(client: ServerClient, folder: Path, swap: Swap | None, *, any_weights: bool = False) -> Fit:
    """The server. SettingError lists everything that is missing for the model in `folder`.

    With `any_weights` only the tokenizer must be the folder's.
    """
    server = await server_info(client)
    if server is None:
        raise SettingError(
            f"the server at {client.url} is not an SGLang server: it has no /server_info of one"
        )
    require_version(server["version"], OLDEST, url=client.url, label="SGLang")
    if not any_weights:
        await asyncio.to_thread(require_same_model, folder, server["model_path"], url=client.url)
    tokens = await same_tokens(client, folder, server["model_path"])
    if missing := list(_missing(server, folder, swap)):
        raise SettingError(f"the SGLang server at {client.url} must be started with {'; and '.join(missing)}")

    async def top_at(temperature: float) -> list[float]:
        body = {
            "input_ids": tokens,
            "sampling_params": {"max_new_tokens": 1, "temperature": temperature},
            "return_logprob": True,
            "top_logprobs_num": TOP,
        }
        (row,) = (await client.post(GENERATE, body)).json["meta_info"]["output_top_logprobs"]
        return [each[0] for each in row]

    after_zero = 1 if server["schedule_low_priority_values_first"] else -1
    traits = Traits(
        tokenizer=server["tokenizer_path"],
        last=vocabulary_of(folder) - 1,
        ends=end_ids(folder, tokenizer_of(folder).token_to_id),
        incremental=bool(server["incremental_streaming_output"]),
        background=after_zero if server["enable_priority_scheduling"] else None,
    )
    return Fit(
        server=SglangServer(client, traits),
        swap=swap,
        basis=await basis_of(top_at),
        context_length=server["max_req_input_len"],
        scored_ids=MOST_SCORED,
        constraint=server.get("grammar_backend") not in (None, "none"),
        dtype=None if server["dtype"] == "auto" else server["dtype"],
        scores_given=True,
    )


async def server_info(client: ServerClient) -> Mapping[str, Any] | None:
    answer = await client.ask("GET", "/server_info")
    found = answer.json if answer.status == 200 else None
    return found if isinstance(found, Mapping) and "max_req_input_len" in found else None


def _missing(server: Mapping[str, Any], folder: Path, swap: Swap | None) -> Iterator[str]:
    if swap != "adapters":
        return
    wanted = adapted_modules(folder)
    modules = f"--lora-target-modules {' '.join(wanted)}"
    if not server["enable_lora"]:
        yield f"--enable-lora --max-lora-rank 16 {modules}"
    elif server["dp_size"] != 1:
        yield "--dp-size 1: several adapters cannot be loaded otherwise"
    elif not (given := set(server["lora_target_modules"] or ())) & {"all"} and not given >= set(wanted):
        yield modules


def command(
    folder: Path, settings: SglangSettings, *, lora_rank: int, more: Sequence[str] = (), **address: Any
) -> ServerCommand:
    """The command line. EngineError if the model's weights cannot be read."""
    needed = ("--dtype", dtype_of(folder, settings), *flags(folder, settings, lora_rank=lora_rank), *more)
    return ServerCommand.of(settings, ("--model-path", str(folder)), needed, **address)


def flags(folder: Path, settings: SglangSettings, *, lora_rank: int) -> tuple[str, ...]:
    """The flags that the engine needs, however the server is started.

    SettingError if the server cannot adapt the model.
    """
    needed = (
        "--incremental-streaming-output",
        "--enable-priority-scheduling",
        *("--grammar-backend", "llguidance"),
    )
    if settings.swap == "whole":
        return needed
    modules = adapted_modules(folder)
    if unknown := [name for name in modules if name not in ADAPTED]:
        raise SettingError(
            f"SGLang has no adapters for {', '.join(unknown)} of {folder.name}: set engine.swap = "
            '"whole" and learner.lora_rank = 0, or take vLLM'
        )
    return (*needed, *("--enable-lora", "--max-lora-rank", str(lora_rank), "--lora-target-modules", *modules))
