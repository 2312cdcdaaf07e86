"""SGLang's wire: ids in, ids and log-probs out, adapters and whole weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from afterwit.core.errors import EngineError, EngineUnavailable, SettingError
from afterwit.engines.server.client import Refused, ServerClient
from afterwit.engines.server.server import Ask, Piece, Place, joined
from afterwit.engines.sglang.asking import is_cut_off, params_of
from afterwit.engines.sglang.clean import CleanFolders
from afterwit.engines.sglang.manner import Manner
from afterwit.engines.sglang.reading import Reader, given_at, logprob_of, lost_adapter, place_at

GENERATE = "/generate"
CHECK_S = 30.0
SHORT_S = 10.0
PLACES = 32
"""Places of one call that scores given ids: its answer has each place's ids at all of them."""
IDLE_S = 60
"""Seconds until nothing runs on a server that was told to end everything."""


class SglangServer:
    """Implements `server.Server`."""

    def __init__(self, client: ServerClient, manner: Manner) -> None:
        self._client, self.manner = client, manner
        self._folders = CleanFolders()
        self._aborting: set[asyncio.Task[None]] = set()

    async def check(self) -> str | None:
        await self._require_ready()
        info = (await self._client.get("/model_info", within_s=CHECK_S)).json
        if info["tokenizer_path"] != self.manner.tokenizer:
            raise SettingError(
                f"the server at {self._client.url} was started anew with another model: "
                f"{info['tokenizer_path']}, not {self.manner.tokenizer}"
            )
        label: str = info["weight_version"]
        return label

    async def _require_ready(self) -> None:
        """What it says it is may be old: after a slow moment it stays unfit until it is asked for a token."""
        try:
            await self._client.get("/ready", within_s=CHECK_S)
        except EngineUnavailable:
            await self._client.get("/health", within_s=CHECK_S)

    async def sample(self, ask: Ask) -> AsyncGenerator[Piece, None]:
        rid, reader = uuid4().hex, Reader(ask, self.manner)
        try:
            async with aclosing(self._client.events(GENERATE, self._body(ask, rid))) as reads:
                async for events in reads:
                    for piece in joined(map(reader.piece, events)):
                        yield piece
                        if piece.ended:
                            return
        except Refused as error:
            raise lost_adapter(error, str(error), ask.weights) from error
        finally:
            if not reader.ended:
                self._abort(rid)

    def _body(self, ask: Ask, rid: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "rid": rid,
            "input_ids": ask.prompt_ids,
            "sampling_params": params_of(ask, self.manner.ends),
            "return_logprob": True,
            "return_sampling_mask": is_cut_off(ask.sampling),
            "top_logprobs_num": ask.top or 0,
            "stream": True,
        }
        if ask.weights is not None:
            body["lora_path"] = ask.weights
        if self.manner.background is not None:  # a request without one comes last of all
            body["priority"] = self.manner.background if ask.background else 0
        return body

    async def score(self, ids: Sequence[int], weights: str | None) -> list[float]:
        meta = await self._read(ids, weights, first=0)
        rows = meta["input_token_logprobs"][1:]  # the first id has no log-prob
        return [logprob_of(row, token, self.manner) for row, token in zip(rows, ids[1:], strict=True)]

    async def places(self, ids: Sequence[int], weights: str | None, *, first: int, top: int) -> list[Place]:
        """The server is asked for one place more: it has no log-prob for the first of those asked for."""
        meta = await self._read(ids, weights, first=first - 1, top_logprobs_num=top)
        own, tops = meta["input_token_logprobs"][1:], meta["input_top_logprobs"][1:]
        rows = zip(ids[first:], own, tops, strict=True)
        return [place_at(token, row, told, top, self.manner) for token, row, told in rows]

    async def given(
        self, ids: Sequence[int], weights: str | None, *, first: int, at: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        """The server takes one list of ids for all places of a call: a few places at a time."""
        found: list[tuple[float, ...]] = []
        for begin in range(0, len(at), PLACES):
            part, start = at[begin : begin + PLACES], first + begin
            wanted = sorted({each for row in part for each in row})
            read = ids[: start + len(part)]
            meta = await self._read(read, weights, first=start - 1, token_ids_logprob=wanted)
            rows = meta["input_token_ids_logprobs"][1:]
            found += [given_at(row, told) for row, told in zip(part, rows, strict=True)]
        return found

    async def _read(
        self, ids: Sequence[int], weights: str | None, *, first: int, **more: Any
    ) -> Mapping[str, Any]:
        """What the server tells of ids from the place `first` on; it samples nothing."""
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
            raise lost_adapter(error, str(error), weights) from error
        return meta

    async def load_adapter(self, name: str, folder: Path) -> None:
        path = await asyncio.to_thread(self._folders.make, name, folder)
        try:
            await self._client.post("/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})
        except Refused as error:
            self._folders.remove(name)
            raise EngineError(
                f"The adapter in {folder} does not fit the served model: {_words(error)}"
            ) from error

    async def unload_adapter(self, name: str) -> None:
        self._folders.remove(name)
        await self._client.post("/unload_lora_adapter", {"lora_name": name}, within_s=SHORT_S)

    async def load_weights(self, folder: Path, label: str) -> None:
        """A server that other programs use too ends their responses as well.

        What it ended may still take a step: keys and values are forgotten afterwards, once nothing runs.
        """
        name = uuid4().hex[:8]
        path = await asyncio.to_thread(self._folders.make, name, folder)
        body = {
            "model_path": str(path),
            "abort_all_requests": True,
            "flush_cache": False,
            "weight_version": label,
        }
        try:
            await self._client.post("/update_weights_from_disk", body)
            await self._client.post(f"/flush_cache?timeout={IDLE_S}")
        except Refused as error:
            raise EngineError(
                f"The weights in {folder} do not fit the served model: {_words(error)}"
            ) from error
        finally:
            self._folders.remove(name)

    async def close(self) -> None:
        await asyncio.gather(*self._aborting)
        self._folders.remove_all()
        await self._client.close()

    def _abort(self, rid: str) -> None:
        """Tell the server at once: by the closed connection alone it learns of it seconds later."""
        task = asyncio.create_task(self._aborted(rid))
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)

    async def _aborted(self, rid: str) -> None:
        with suppress(EngineError):
            await self._client.post("/abort_request", {"rid": rid}, within_s=SHORT_S)


def _words(error: Refused) -> str:
    """What the server says of weights that it refused."""
    found = error.answer.json
    if isinstance(found, Mapping):
        return str(found.get("error_message") or found.get("message") or error)
    return str(error)
