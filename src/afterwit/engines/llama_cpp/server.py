"""The client of `llama-server`: its protocol, its processes, its features, and the command that starts one.

It loads no adapter while it runs, so each version is a process of its own over the same file, whose pages the
processes share. It scores no prompt, but reports the log-prob of an id that a bias forces upon it: a response
is scored id by id, each over the cached ones before it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from afterwit.chat_format.encode import BROKEN, bytes_of
from afterwit.chat_format.folder import end_ids, read_json, tokenizer_of
from afterwit.engines.model_files import LINK, file_fingerprint
from afterwit.engines.port import OPTIONS, TopLogprobs, schema_refused
from afterwit.engines.server.client import Refused, ServerClient, failed
from afterwit.engines.server.inspect import (
    MOST_SCORED,
    TOP,
    Fit,
    basis_of,
    dtype_of,
    same_tokens,
    vocabulary_of,
)
from afterwit.engines.server.process import SCRATCH, EngineProcess
from afterwit.engines.server.server import (
    CHECK_S,
    SEEDS,
    SampleRequest,
    Server,
    ServerCommand,
    StreamChunk,
    top_logprobs,
    unfit,
)
from afterwit.engines.server.settings import LlamaCppSettings, Swap
from afterwit.errors import EngineError, EngineUnavailable, SettingError

COMPLETION = "/completion"
KEY = "LLAMA_API_KEY"
"""The environment variable from which the server reads its key."""
HERE = ("127.0.0.1", "localhost", "::1")
LOOK_S = 0.2
SURE = 1e6
"""Added to a logit, it leaves no other id a chance; the reported log-probs are of the logits before it."""
FIXED = {"return_tokens": True, "cache_prompt": True, "post_sampling_probs": False, "temperature": 0.0}
ORDER = ("penalties", "temperature", "top_k", "top_p", "min_p")
"""Of the sampler's steps: truncation after the temperature, as in all other engines."""
EXACT = ("--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off")
"""Of a model in single precision: within 1e-5 nats of the learner's log-probs, and .002 without them."""
PROBE_IDS = 65
"""Scoring costs as much as sampling, and this many ids show which weights answer."""
PROCESSES = 3
"""Of the base, the live version, and a new one that is tested."""
EMPTY = 16
"""Requests in a row without an id, after which a response counts as broken off."""
UNENFORCED = frozenset(
    (
        *("not", "if", "then", "else", "contains", "uniqueItems", "multipleOf", "propertyNames"),
        *("minProperties", "maxProperties", "patternProperties", "dependentRequired", "dependentSchemas"),
        *("unevaluatedItems", "unevaluatedProperties"),
    )
)
"""Parts of a schema that its grammars leave out without a word."""
BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
"""Enforced for integers alone."""
NAMED, LITERAL = ("properties", "$defs", "definitions"), ("enum", "const", "default", "examples")


class LlamaCppServer(Server):
    """Implements `server.Server`: the server of the base, and a process for each adapter."""

    def __init__(self, client: ServerClient, settings: LlamaCppSettings, folder: Path, *, path: str) -> None:
        """`client` is the base's, `path` the file that it serves, `folder` the model's, whose tokenizer is
        read."""
        self._base, self._settings, self._folder, self._path = client, settings, folder, path
        self._ids_of, self._vocabulary = ids_by_bytes(folder), vocabulary_of(folder)
        self._end = min(end_ids(folder, tokenizer_of(folder).token_to_id))
        self._processes: dict[str, tuple[EngineProcess, ServerClient]] = {}
        self._key = settings.key(os.environ) or secrets.token_hex(20)
        name = hashlib.sha256(f"{folder.resolve()} {client.url}".encode()).hexdigest()[:12]
        self._place = Path(tempfile.gettempdir(), f"{SCRATCH}{name}-versions")
        """Of logs, and of an adapter while its process starts. A kill of this process leaves it, and the next
        one takes its place."""
        self._scoring = asyncio.Lock()
        """Each id is scored over the cache of the one before, which other rows would drop."""

    async def check(self) -> str | None:
        await self._base.get("/health", within_s=CHECK_S)
        served = (await self._base.get("/props", within_s=CHECK_S)).json["model_path"]
        if served != self._path:
            raise SettingError(
                f"the server at {self._base.url} now serves another model: {served}, not {self._path}"
            )
        for name, (process, _) in self._processes.items():
            if process.has_ended:
                await self.unload_adapter(name)
                raise EngineUnavailable(f"the process of the adapter {name} ended")
        return None

    async def sample(self, request: SampleRequest) -> AsyncGenerator[StreamChunk, None]:
        """The server ends a response at any end token of its vocabulary. If the request does not name that
        one, and if the server does not report ids, the rest is requested again.

        A response whose last ids are within a character ends before it if they are not reported.
        """
        done: list[int] = []
        empty, cut = 0, None
        while empty < EMPTY:
            before, cut = len(done), None
            try:
                async with aclosing(self._stream(request, done, empty)) as chunks:
                    async for chunk in chunks:
                        done += chunk.ids
                        yield chunk
                        if chunk.ended:
                            return
            except Unreported as error:
                cut = error
            empty = empty + 1 if len(done) == before else 0
            if cut is not None and empty and request.sampling.greedy:
                break  # another request would sample the same
        if cut is None or not cut.at_limit:
            raise EngineError("the server does not report the ids that it samples")
        yield StreamChunk(ids=(), logprobs=(), ended="length")

    async def _stream(
        self, request: SampleRequest, done: Sequence[int], tried: int
    ) -> AsyncGenerator[StreamChunk, None]:
        """The chunks that one request adds to `done`, perhaps without an end."""
        body, response = params_of(request, done, tried), Reader(request, self._ids_of)
        try:
            async with aclosing(self._client(request.weights).events(COMPLETION, body)) as reads:
                async for events in reads:
                    for event in events:
                        if (chunk := response.take(event)) is not None:
                            yield chunk
        except Refused as error:
            if "json_schema" in error.answer.message:
                raise schema_refused(error.answer.message) from error
            raise

    async def score(self, ids: Sequence[int], weights: str | None) -> list[float]:
        return [each.sampled for each in await self.top_logprobs(ids, weights, first=1, top=1)]

    async def score_scaled(self, ids: Sequence[int], name: str, folder: Path, times: float) -> list[float]:
        scaled = [{"id": 0, "scale": times}]
        return [each.sampled for each in await self.top_logprobs(ids, name, first=1, top=1, lora=scaled)]

    async def top_logprobs(
        self, ids: Sequence[int], weights: str | None, *, first: int, top: int, **more: Any
    ) -> list[TopLogprobs]:
        client = self._client(weights)
        async with self._scoring:
            return [
                await self._next(client, ids[:place], ids[place], top, more)
                for place in range(first, len(ids))
            ]

    async def _next(
        self, client: ServerClient, prompt: Sequence[int], token: int, top: int, more: Mapping[str, Any]
    ) -> TopLogprobs:
        """The log-prob of an id after a prompt, and the `top` most likely ones.

        That of an id which ends within a character is reported for no response, but with all the others of
        the vocabulary.
        """

        async def forced(to: int, count: int) -> list[tuple[int, float]]:
            body = {**FIXED, **more, "prompt": list(prompt), "n_predict": 1, "n_probs": count}
            answer = (await client.post(COMPLETION, {**body, "logit_bias": [[to, SURE]]})).json
            rows = answer.get("completion_probabilities")
            return _pairs(rows[0]) if rows else []

        found = await forced(token, max(1, top)) or await forced(self._end, self._vocabulary)
        return top_logprobs(token, found, top)

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Start a process with it. It reads the file at its start only."""
        from safetensors import SafetensorError

        from afterwit.gguf.write import write_adapter

        await asyncio.to_thread(self._place.mkdir, 0o700, exist_ok=True)
        file = self._place / f"{name}.gguf"
        with socket.create_server((HERE[0], 0)) as probe:
            host, port = probe.getsockname()
        url, adapter = f"http://{host}:{port}", ("--lora", str(file))
        launch = command(self._folder, self._settings, host=host, port=port, more=adapter)
        launch = replace(launch, environment={KEY: self._key})
        process = EngineProcess(launch, url, self._place, name=name, look_s=LOOK_S, once=True)
        try:
            await asyncio.to_thread(write_adapter, self._folder, folder, file, name=name)
            await process.start(within_s=self._settings.start_s, progress=lambda step: None)
        except (SettingError, OSError, SafetensorError) as error:
            await process.stop()
            raise unfit("adapter", folder, error) from error
        except BaseException:
            process.kill()
            raise
        finally:
            file.unlink(missing_ok=True)
        silence_s, reuses = self._settings.silence_s, self._settings.reuses
        client = ServerClient(url, key=self._key, silence_s=silence_s, reuses=reuses)
        self._processes[name] = process, client

    async def unload_adapter(self, name: str) -> None:
        if name not in self._processes:
            return
        process, client = self._processes.pop(name)
        await client.close()
        process.kill()  # it has nothing to keep, and with a running response it waits at SIGTERM
        await process.stop()
        process.log.unlink(missing_ok=True)

    async def load_weights(self, folder: Path, label: str) -> None:
        raise EngineError("llama.cpp takes adapters only: set learner.lora_rank above 0, such as 16")

    async def close(self) -> None:
        for name in [*self._processes]:
            await self.unload_adapter(name)
        await self._base.close()
        await asyncio.to_thread(shutil.rmtree, self._place, ignore_errors=True)

    def _client(self, weights: str | None) -> ServerClient:
        if weights is None:
            return self._base
        if weights not in self._processes:
            raise EngineUnavailable(f"the process of the adapter {weights} ended")
        return self._processes[weights][1]


def ids_by_bytes(folder: Path) -> dict[bytes, int]:
    """The id of each text of a vocabulary over bytes, or of each byte of one over pieces."""
    vocabulary = read_json(folder / "tokenizer.json")["model"]["vocab"]
    return {data: index for token, index in vocabulary.items() if (data := bytes_of(token)) is not None}


def params_of(request: SampleRequest, done: Sequence[int], tried: int) -> dict[str, Any]:
    """The body of a request for the ids after `done`, for the `tried`-th time again."""
    sampling, greedy = request.sampling, request.sampling.greedy
    body: dict[str, Any] = {
        "prompt": [*request.prompt_ids, *done],
        "n_predict": sampling.max_tokens - len(done),
        "stream": True,
        "return_tokens": True,
        "return_progress": True,
        "cache_prompt": True,
        "n_probs": max(1, request.top or 0),
        "post_sampling_probs": False,
        "samplers": ORDER,
        "temperature": 0.0 if greedy else sampling.temperature,
        "top_k": 0 if greedy else sampling.top_k,
        "top_p": 1.0 if greedy else sampling.top_p,
        "min_p": 0.0 if greedy else sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": len(request.prompt_ids) + sampling.max_tokens,
        "logit_bias": [[token, bias] for token, bias in sampling.logit_bias],
    }
    if sampling.seed is not None:
        body["seed"] = (sampling.seed + len(done) + tried) % SEEDS
    if request.schema is not None:
        schema = json.loads(request.schema)
        lenient = schema.pop(OPTIONS, {}).get("lenient")
        if not lenient and (left_out := next(unenforced(schema), None)):
            raise schema_refused(f"llama.cpp does not enforce {left_out}")
        body["json_schema"] = schema
    return body


def unenforced(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from unenforced(each)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key in UNENFORCED or (key in BOUNDS and schema.get("type") != "integer"):
                yield key
            if key in NAMED and isinstance(value, dict):
                yield from unenforced([*value.values()])
            elif key not in LITERAL:
                yield from unenforced(value)


class Unreported(EngineError):
    """Ids that the server does not report, and that the text of its event does not show. `at_limit`: they are
    the last ones of a response of `max_tokens`."""

    def __init__(self, message: str, *, at_limit: bool = False) -> None:
        super().__init__(message)
        self.at_limit = at_limit


class Reader:
    """Reads the events of one streamed response.

    The server reports no id that ends within a character: the next one comes with the character's text. The
    bytes before it show which ids are missing, but not their log-probs.
    """

    def __init__(self, request: SampleRequest, ids_of: Mapping[bytes, int]) -> None:
        self._request, self._ids_of = request, ids_of
        self._seen = 0
        self._cached: int | None = None

    def take(self, event: Mapping[str, Any]) -> StreamChunk | None:
        """The chunk of an event; None if it adds nothing. Unreported if missing ids cannot be recovered.

        EngineError if the server reports a fault in the middle of the response.
        """
        if (error := event.get("error")) is not None:
            raise failed(COMPLETION, error)
        if (progress := event.get("prompt_progress")) is not None:
            self._cached = progress["cache"]
            return None
        rows, total = event.get("completion_probabilities", ()), event["tokens_predicted"]
        missing, self._seen = total - self._seen - len(rows), total
        at_limit = event["stop"] and event["stop_type"] == "limit"
        lost = self._recovered(event["content"], rows, missing, at_limit=at_limit) if missing else ()
        ended = self._end(event["stop_type"]) if event["stop"] else None
        chunk = StreamChunk(
            ids=(*lost, *(row["id"] for row in rows)),
            logprobs=(*(0.0 for _ in lost), *(row["logprob"] for row in rows)),
            tops=self._tops(lost, rows),
            unscored=(*(True for _ in lost), *(False for _ in rows)),
            ended=ended,
            cached=self._cached,
        )
        chunk = chunk.up_to(self._request.end_ids)
        return chunk if chunk.ids or ended else None

    def _end(self, kind: str) -> str | None:
        """A grammar's end is any end token; of other responses only those that the request names are."""
        if kind == "eos" and self._request.schema is not None:
            return "stop"
        return "length" if kind == "limit" else None

    def _recovered(
        self, text: str, rows: Sequence[Mapping[str, Any]], count: int, *, at_limit: bool
    ) -> Sequence[int]:
        last = b"".join(bytes(row["bytes"]) for row in rows)
        whole = text.encode()
        if BROKEN in text or not rows or not whole.endswith(last):
            message = "the server does not report how a character was broken off"
            raise Unreported(message, at_limit=at_limit)
        begun = whole[: len(whole) - len(last)]
        if (found := next(splits(begun, count, self._ids_of), None)) is None:
            raise Unreported(f"no {count} ids have the bytes {begun!r}")
        return found

    def _tops(self, lost: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> tuple[TopLogprobs, ...]:
        if (top := self._request.top) is None:
            return ()
        found = (top_logprobs(row["id"], _pairs(row), top) for row in rows)
        return (*(TopLogprobs(0.0, (), ()) for _ in lost), *found)


def _pairs(row: Mapping[str, Any]) -> list[tuple[int, float]]:
    """An id and its alternatives, with their log-probs."""
    return [(each["id"], each["logprob"]) for each in (row, *row["top_logprobs"])]


def splits(data: bytes, count: int, ids_of: Mapping[bytes, int]) -> Iterator[tuple[int, ...]]:
    """Every row of `count` ids with these bytes, those with a longer beginning first."""
    if count == 1:
        if data in ids_of:
            yield (ids_of[data],)
        return
    for end in range(len(data) - count + 1, 0, -1):
        if data[:end] in ids_of:
            for rest in splits(data[end:], count - 1, ids_of):
                yield (ids_of[data[:end]], *rest)


def command(
    folder: Path, settings: LlamaCppSettings, *, lora_rank: int = 0, more: Sequence[str] = (), **address: Any
) -> ServerCommand:
    """The command line. SettingError if the model does not come from a GGUF file.

    Each response has its own context, because a full shared one would end responses. The server's cache of
    prompts, which ignores the adapter's scale and takes 8 GiB, is off.
    """
    if not (file := folder / LINK).is_file():
        gone = f", whose file {file.readlink()} is gone" if file.is_symlink() else ""
        raise SettingError(f"llama.cpp serves a GGUF file: name one in place of {folder}{gone}")
    longest = read_json(folder / "config.json").get("max_position_embeddings", settings.context_length)
    context = min(settings.context_length, longest)
    exact = EXACT if dtype_of(folder, settings) == "float32" else ()
    size = ("--parallel", str(settings.slots), "--ctx-size", str(settings.slots * context))
    needed = (*size, "--no-kv-unified", "--cache-ram", "0", "--no-webui", *exact, *more)
    return ServerCommand.of(settings, ("--model", str(file)), needed, **address)


async def inspect(
    client: ServerClient, folder: Path, swap: Swap | None, *, settings: LlamaCppSettings
) -> Fit:
    """The server. SettingError lists what is missing for the model in `folder`."""
    answer = await client.ask("GET", "/props")
    props = answer.json if answer.status == 200 else None
    if not isinstance(props, Mapping) or "default_generation_settings" not in props:
        raise SettingError(f"the server at {client.url} is not llama-server: it has no /props of one")
    default, path = props["default_generation_settings"], props["model_path"]
    await asyncio.to_thread(_require_same_file, folder, path, url=client.url)
    tokens = await same_tokens(client, folder, path, field="content", named={"parse_special": True})
    if default.get("params", {}).get("lora"):
        raise SettingError(f"the server at {client.url} has an adapter already: start it without --lora")
    if swap is not None:
        _require_processes(settings, client.url)

    end = min(end_ids(folder, tokenizer_of(folder).token_to_id))

    async def top_at(temperature: float) -> list[float]:
        fixed = {**FIXED, "n_predict": 1, "n_probs": TOP, "logit_bias": [[end, SURE]]}
        body = {**fixed, "prompt": tokens, "temperature": temperature}
        rows = (await client.post(COMPLETION, body)).json.get("completion_probabilities")
        if not rows or "logprob" not in rows[0]:
            raise SettingError(f"the server at {client.url} reports no log-probs: install a newer llama.cpp")
        return [each["logprob"] for each in rows[0]["top_logprobs"]]

    return Fit(
        server=await asyncio.to_thread(partial(LlamaCppServer, client, settings, folder, path=path)),
        swap=swap,
        basis=await basis_of(top_at),
        context_length=default["n_ctx"],
        scored_ids=MOST_SCORED,
        constraint=True,
        dtype=None,
        scores_given=False,
        own_adapters=False,
        longest_probe=PROBE_IDS,
    )


def _require_same_file(folder: Path, served: str, *, url: str) -> None:
    ours, theirs = folder / LINK, Path(served)
    if not (ours.is_file() and theirs.is_file()) or ours.resolve() == theirs.resolve():
        return
    if file_fingerprint(ours) != file_fingerprint(theirs):
        raise SettingError(f"the server at {url} serves {served}, but the model here is {ours.resolve()}")


def _require_processes(settings: LlamaCppSettings, url: str) -> None:
    """SettingError unless versions can be started here, as processes next to the server of the base."""
    if urlsplit(url).hostname not in HERE:
        raise SettingError(
            f"llama.cpp takes a new adapter in a new process on this machine, but the server at {url} is on "
            "another: run Afterwit there, or set learner.enabled = false"
        )
    if shutil.which(settings.command[0]) is None:
        raise SettingError(
            f"{settings.command[0]} is not found, which serves new versions: name it in engine.command"
        )
    if find_spec("gguf") is None:
        raise SettingError("new versions are written as GGUF: install Afterwit with its extra gguf")
