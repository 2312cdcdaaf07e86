"""SGLang's wire: ids in, ids and log-probs out, adapters and whole weights."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from afterwit.checkpoints.files import STATE
from afterwit.engines.server.client import Refused, ServerClient, failed
from afterwit.engines.server.server import CUT, Ask, Piece, Place, joined, place_of
from afterwit.errors import EngineError, EngineUnavailable, RequestRefused, SettingError
from afterwit.turn import Sampling

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


ENDS = {"stop": "stop", "length": "length"}
GRAMMAR = "grammar"
"""In what the server says of a schema that it cannot follow."""

WORDS = 200
UNKNOWN = ("never been loaded", "not loaded")
"""What the server says of an adapter that it does not have."""


class Reader:
    """The pieces of one response. `ended`: the server has nothing more to say."""

    def __init__(self, ask: Ask, manner: Manner) -> None:
        self._ends, self._weights, self._incremental = ask.end_ids, ask.weights, manner.incremental
        self._top, self._has_schema = ask.top, ask.schema is not None
        self._column = "output_token_sampling_logprobs" if is_cut_off(ask.sampling) else None
        self._read = 0
        self.ended = False

    def piece(self, event: Mapping[str, Any]) -> Piece:
        """EngineError if the server reports a fault in place of the rest."""
        if "error" in event:
            self.ended = True
            said = str(event["error"].get("message"))
            self._check_schema(said)
            words = f"the server failed in a response: {said}"
            raise lost_adapter(failed("/generate", event["error"], words), words, self._weights)
        meta = event["meta_info"]
        rows = self._new(meta["output_token_logprobs"])
        ids = tuple(row[1] for row in rows)
        logprobs = tuple(row[0] for row in rows)
        tops = self._tops(meta, rows)
        if self._column is not None:
            logprobs = tuple(self._new(meta[self._column]))
        self._read += len(ids)
        reason = meta["finish_reason"]
        self.ended = reason is not None
        if reason is not None and reason["type"] == "abort":
            self._check_schema(str(reason.get("message")))
        end = next((place for place, token in enumerate(ids) if token in self._ends), None)
        if end is not None:  # the server stops there too, if it may: what it says behind it was not asked for
            piece = Piece(ids=ids, logprobs=logprobs, tops=tops)
            return replace(piece.first(end + 1), ended="stop")
        ended = None if reason is None else ENDS.get(reason["type"], CUT)
        return Piece(ids=ids, logprobs=logprobs, tops=tops, ended=ended)

    def _check_schema(self, said: str) -> None:
        """RequestRefused if the server ends the response because of its schema: it is there and works."""
        if self._has_schema and GRAMMAR in said:
            raise RequestRefused(f"The schema cannot be followed: {said[:WORDS]}", field="constraint")

    def _tops(self, meta: Mapping[str, Any], rows: list[Any]) -> tuple[Place, ...]:
        if self._top is None:
            return ()
        told = self._new(meta["output_top_logprobs"]) if self._top else [()] * len(rows)
        return tuple(
            place_of(row[1], [*((each[1], each[0]) for each in others), (row[1], row[0])], self._top)
            for row, others in zip(rows, told, strict=True)
        )

    def _new(self, column: list[Any]) -> list[Any]:
        return column if self._incremental else column[self._read :]


def logprob_of(row: Sequence[Any], token: int, manner: Manner) -> float:
    """EngineError unless the row is of this id and has a number."""
    value, index = row[0], row[1]
    if value is None or not (index == token or (index == 0 and token == manner.last)):
        raise EngineError(f"the server scored id {index} in place of {token}")
    return float(value)


def place_at(
    token: int, row: Sequence[Any], told: Sequence[Sequence[Any]], top: int, manner: Manner
) -> Place:
    """What the server says of an id and of the `top` likeliest at its place."""
    values = [(each[1], each[0]) for each in told]
    return place_of(token, [*values, (token, logprob_of(row, token, manner))], top)


def given_at(wanted: Sequence[int], told: Sequence[Sequence[Any]]) -> tuple[float, ...]:
    """The log-probs of these ids among those that the server says of a place. KeyError without one."""
    values = {each[1]: each[0] for each in told}
    return tuple(float(values[token]) for token in wanted)


def lost_adapter(error: EngineError, words: str, weights: str | None) -> EngineError:
    """A server that knows an adapter no more was started anew."""
    if weights is not None and any(each in words for each in UNKNOWN):
        return EngineUnavailable(f"the server no longer has the adapter {weights}")
    return error


def is_cut_off(sampling: Sampling) -> bool:
    """Whether ids were cut off before sampling: the server gives log-probs before that, if not asked."""
    return sampling.truncated and not sampling.greedy


def params_of(ask: Ask, own: frozenset[int]) -> dict[str, Any]:
    """Text is made here, not there; so are stops that the server would ignore with its own end ids."""
    sampling, ends, greedy = ask.sampling, ask.end_ids, ask.sampling.greedy
    params: dict[str, Any] = {
        "max_new_tokens": sampling.max_tokens,
        "temperature": 0.0 if greedy else sampling.temperature,
        "top_p": 1.0 if greedy else sampling.top_p,
        "top_k": -1 if greedy or sampling.top_k == 0 else sampling.top_k,
        "min_p": 0.0 if greedy else sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "stop_token_ids": sorted(ends),
        "ignore_eos": not own <= ends,
    }
    if ask.schema is not None:
        params["json_schema"] = ask.schema
    if sampling.seed is not None:
        params["sampling_seed"] = sampling.seed
    if sampling.logit_bias:
        params["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    return params


class CleanFolders:
    """Folders of links, each beside a version's own, to all of its files but the learner's state."""

    def __init__(self) -> None:
        self._made: dict[str, Path] = {}

    def make(self, name: str, folder: Path) -> Path:
        """The folder to read in place of `folder`, known by `name` until it is removed.

        EngineError if it cannot be written.
        """
        source = folder.resolve()
        if not (source / STATE).exists():
            return source
        clean = source.parent / f".{source.name}-{name}"
        try:
            clean.mkdir(mode=0o700)
            self._made[name] = clean
            for path in source.iterdir():
                if path.name != STATE:
                    (clean / path.name).symlink_to(path)
        except OSError as error:
            raise EngineError(f"{clean} cannot be made for the server to read: {error}") from error
        return clean

    def remove(self, name: str) -> None:
        """The server has read it, or never will."""
        if (clean := self._made.pop(name, None)) is not None:
            shutil.rmtree(clean, ignore_errors=True)

    def remove_all(self) -> None:
        for name in list(self._made):
            self.remove(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How this server wants to be asked, and answers."""

    tokenizer: str
    """Where it read its tokenizer from: weights come and go, this stays."""
    ends: frozenset[int]
    """The model's own end ids, at which it stops if it is not told to ignore them."""
    last: int
    """The last id of the vocabulary: the server scores it in a prompt, and calls it 0 there."""
    incremental: bool
    """Each event of a stream holds what is new; else, all so far."""
    background: int | None
    """The priority of requests in the background, where people's have 0; None: it takes no priorities."""
