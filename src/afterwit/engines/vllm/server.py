"""vLLM's wire: ids in, ids and log-probs out, adapters and whole weights."""

from __future__ import annotations

import ast
import asyncio
import base64
import json
import math
import shutil
import struct
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from afterwit.engines.server.client import Refused, ServerClient, failed, gathered
from afterwit.engines.server.server import CUT, Ask, Piece, Place, joined, place_of
from afterwit.engines.server.swaps import weights_of
from afterwit.errors import EngineError, EngineUnavailable, RequestRefused, SettingError

GENERATE = "/inference/v1/generate"
CHECK_S = 30.0
UNLOAD_S = 10.0
BACKGROUND = 1
"""vLLM serves lower numbers first; people's requests have 0."""

REFUSED = 400
WORDS = 200
"""Characters of the server's words about a schema."""

NOTHING = -9999.0
"""What vLLM writes in place of -inf, which JSON does not have."""

ENDS = {"stop": "stop", "length": "length"}


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
        neutral: str | None = None,
        caches: bool = False,
        raw: bool = False,
    ) -> None:
        """`model` is the name of the model without adapter, `root` where the server read it from.

        `priorities`: the server takes them. `labels`: it says which weights it has. `neutral`: the base as
        an adapter, which an engine has put on it. `caches`: it finds again what it has read. `raw`: its
        log-probs are of the model's own distribution.
        """
        self._client, self._model, self._root = client, model, root
        self._priorities, self._labels = priorities, labels
        self._caches, self._raw = caches, raw
        self._neutral = NeutralBase(neutral)

    async def check(self) -> str | None:
        await self._client.get("/health", within_s=CHECK_S)
        neutral = self._neutral.name
        models = (await self._client.get("/v1/models", within_s=CHECK_S)).json
        base = next((each for each in models["data"] if each["id"] == self._model), None)
        if base is None or base["root"] != self._root:
            found = ", ".join(each["root"] for each in models["data"] if not each.get("parent"))
            raise SettingError(
                f"the server at {self._client.url} now serves another model: {found}, not {self._root}"
            )
        if neutral is not None and neutral not in {each["id"] for each in models["data"]}:
            self._neutral.lost(neutral)
        if not self._labels:
            return None
        label: str = (await self._client.get("/weight_info", within_s=CHECK_S)).json["weight_version"]
        return label

    async def sample(self, ask: Ask) -> AsyncGenerator[Piece, None]:
        body = {"token_ids": ask.prompt_ids, "sampling_params": _params(ask), "stream": True}
        if ask.schema is not None:
            body["reasoning_ended"] = True  # it is dealt with here: the schema holds from the first id on
        if self._priorities and ask.background:
            body["priority"] = BACKGROUND
        with self._named(ask.weights) as name:
            try:
                async with aclosing(self._client.events(GENERATE, {"model": name, **body})) as reads:
                    async for events in reads:
                        for piece in joined(_piece(event, ask) for event in events):
                            yield piece
            except Refused as error:
                if ask.schema is not None and error.answer.status == REFUSED:
                    raise _unfollowed(error.answer.words) from error
                raise self._without_adapter(error, name) from error

    async def score(self, ids: Sequence[int], weights: str | None) -> list[float]:
        rows = (await self._prompt_logprobs(ids, weights, 0))[1:]
        return [row[str(token)]["logprob"] for token, row in zip(ids[1:], rows, strict=True)]

    async def places(self, ids: Sequence[int], weights: str | None, *, first: int, top: int) -> list[Place]:
        if self._caches and pays(ids, first):
            tell = partial(self._tell, weights)
            return await next_places(tell, ids, first=first, top=top, raw=self._raw)
        rows = (await self._prompt_logprobs(ids, weights, top))[first:]
        return [_place(token, row, top) for token, row in zip(ids[first:], rows, strict=True)]

    async def given(
        self, ids: Sequence[int], weights: str | None, *, first: int, at: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        answer = await self._asked(ids, weights, params_of(at, first))
        return values_of(answer["prompt_token_id_logprobs"], at)

    async def _prompt_logprobs(self, ids: Sequence[int], weights: str | None, top: int) -> list[Any]:
        rows: list[Any] = (await self._asked(ids, weights, {"prompt_logprobs": top}))["prompt_logprobs"]
        return rows

    async def _tell(
        self, weights: str | None, ids: Sequence[int], params: Mapping[str, Any]
    ) -> list[tuple[int, float]]:
        """What it tells of the next id, at temperature 1."""
        answer = await self._asked(ids, weights, {"ignore_eos": True, **params})
        (said,) = answer["choices"][0]["logprobs"]["content"]
        told = {said["token_id"]: said["logprob"]}
        told |= {each["token_id"]: each["logprob"] for each in said["top_logprobs"]}
        return [(each, _value(value)) for each, value in told.items()]

    async def _asked(self, ids: Sequence[int], weights: str | None, params: Mapping[str, Any]) -> Any:
        """The answer to ids, of which it says one more."""
        fixed = {"max_tokens": 1, "temperature": 0.0, "detokenize": False}
        body = {"token_ids": list(ids), "sampling_params": {**fixed, **params}}
        with self._named(weights) as name:
            try:
                return (await self._client.post(GENERATE, {"model": name, **body})).json
            except Refused as error:
                raise self._without_adapter(error, name) from error

    async def load_adapter(self, name: str, folder: Path) -> None:
        if self._neutral.name is None:
            zeros, at = await self._neutral.make(folder)
            await self._load(zeros, at, like=folder)
            await self._neutral.serves(zeros)
        await self._load(name, folder, like=folder)

    async def _load(self, name: str, at: Path, *, like: Path) -> None:
        body = {"lora_name": name, "lora_path": str(at)}
        try:
            await self._client.post("/v1/load_lora_adapter", body)
        except Refused as error:
            raise EngineError(f"The adapter in {like} does not fit the served model: {error}") from error

    async def unload_adapter(self, name: str) -> None:
        await self._client.post("/v1/unload_lora_adapter", {"lora_name": name}, within_s=UNLOAD_S)

    async def load_weights(self, folder: Path, label: str) -> None:
        """The server pauses meanwhile, and goes on whatever happens."""
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
        if (name := self._neutral.made) is not None:
            with suppress(EngineError):
                await self.unload_adapter(name)
        await self._neutral.remove()
        await self._client.close()

    @contextmanager
    def _named(self, weights: str | None) -> Iterator[str]:
        """What the server calls an adapter, or the model without one."""
        if weights is not None:
            yield weights
            return
        with self._neutral.asking() as name:
            yield name or self._model

    def _without_adapter(self, error: Refused, weights: str) -> EngineError:
        """A server that knows an adapter no more was started anew."""
        if weights != self._model and error.answer.status == 404:
            return EngineUnavailable(f"the server at {self._client.url} no longer has the adapter {weights}")
        return error


def _unfollowed(words: str) -> RequestRefused:
    return RequestRefused(f"The schema cannot be followed: {words[:WORDS]}", field="constraint")


def _params(ask: Ask) -> dict[str, Any]:
    """The server's own end ids are ignored: ours are named. Text is made here, not there."""
    sampling, greedy = ask.sampling, ask.sampling.greedy
    params: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": 0.0 if greedy else sampling.temperature,
        "top_p": 1.0 if greedy else sampling.top_p,
        "top_k": 0 if greedy else sampling.top_k,
        "min_p": 0.0 if greedy else sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "stop_token_ids": sorted(ask.end_ids),
        "ignore_eos": True,
        "logprobs": ask.top or 0,
        "detokenize": False,
    }
    if ask.schema is not None:
        params["structured_outputs"] = {"json": ask.schema}
    if sampling.seed is not None:
        params["seed"] = sampling.seed
    if sampling.logit_bias:
        params["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    return params


def _place(token: int, row: Mapping[str, Any], top: int) -> Place:
    """The server tells the `top` likeliest and the id itself."""
    return place_of(token, ((int(name), _value(each["logprob"])) for name, each in row.items()), top)


def _sampled_place(said: Mapping[str, Any], top: int) -> Place:
    token = said["token_id"]
    told = {each["token_id"]: _value(each["logprob"]) for each in said["top_logprobs"]}
    return place_of(token, ({token: said["logprob"]} | told).items(), top)


def _value(logprob: float) -> float:
    return -math.inf if logprob <= NOTHING else logprob


def _piece(event: Mapping[str, Any], ask: Ask) -> Piece:
    """EngineError if the server reports a fault in the middle of a response."""
    if "error" in event:
        error = event["error"]
        words = error.get("message")
        if ask.schema is not None and error.get("code") == REFUSED:
            raise _unfollowed(words)
        raise failed(GENERATE, error, f"the server failed in the middle of a response: {words}")
    choice = event["choices"][0]
    content = (choice["logprobs"] or {}).get("content") or ()
    reason = choice["finish_reason"]
    return Piece(
        ids=tuple(choice["token_ids"]),
        logprobs=tuple(each["logprob"] for each in content),
        tops=() if ask.top is None else tuple(_sampled_place(each, ask.top) for each in content),
        ended=None if reason is None else ENDS.get(reason, CUT),
    )


CALL = 16
"""Tokens of a prompt that cost about what one such call costs."""

AT_ONCE = 8
"""Calls of one response at one time."""

BIAS = 100.0
"""The most that the server adds to a logit."""

Tell = Callable[[Sequence[int], dict[str, Any]], Awaitable[list[tuple[int, float]]]]
"""(ids, sampling parameters) -> what the server tells of the next id, the one that it says first."""


def pays(ids: Sequence[int], first: int) -> bool:
    """Whether the places of ids[first:] are so few beside what precedes them."""
    return CALL * (len(ids) - first) <= first


async def next_places(tell: Tell, ids: Sequence[int], *, first: int, top: int, raw: bool) -> list[Place]:
    """As `Server.places`. `raw`: log-probs are told as they are before a bias.

    The longest beginning comes first: the others' are in the server's cache then.
    """

    async def at(place: int) -> Place:
        token, begun = ids[place], ids[:place]
        told = await tell(begun, {"logprobs": top})
        if token not in dict(told):
            told = [*told, (token, await _biased(tell, begun, token, told[0], raw=raw))]
        return place_of(token, told, top)

    last = await at(len(ids) - 1)
    return [*await gathered([partial(at, place) for place in range(first, len(ids) - 1)], AT_ONCE), last]


async def _biased(
    tell: Tell, begun: Sequence[int], token: int, best: tuple[int, float], *, raw: bool
) -> float:
    """The log-prob of an unlikely id. Biased, it takes nearly all of the mass; what the likeliest one lost by
    that is the bias less what the id had: log p = l - l' - bias, as long as p * exp(bias) is far above 1."""
    told = dict(await tell(begun, {"logprobs": 2, "logit_bias": {str(token): BIAS}}))
    if raw:
        return told[token]
    return best[1] - told[best[0]] - BIAS


MAGIC = b"\x93NUMPY"


def params_of(at: Sequence[Sequence[int]], first: int) -> dict[str, Any]:
    """Sampling parameters: row i is of the ids that may stand at place first + i."""
    return {"prompt_logprob_token_ids": [list(row) for row in at], "prompt_logprob_start": first - 1}


def values_of(answer: str, at: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
    """The log-probs in an answer: a table in NumPy's file format, in base 64. ValueError for any other."""
    data = base64.b64decode(answer)
    if not data.startswith(MAGIC):
        raise ValueError("the server's rows are no NumPy table")
    wide = data[len(MAGIC)] > 1
    begin = len(MAGIC) + 2
    (size,) = struct.unpack_from("<I" if wide else "<H", data, begin)
    begin += 4 if wide else 2
    head = ast.literal_eval(data[begin : begin + size].decode("latin-1"))
    if head["descr"] != "<f4" or head["fortran_order"] or head["shape"][0] != len(at):
        raise ValueError(f"the server's rows are {head}, but {len(at)} rows of float32 are wanted")
    values, width = array("f", data[begin + size :]), head["shape"][1]
    return [tuple(values[place * width : place * width + len(row)]) for place, row in enumerate(at)]


NAME = "afterwit-base-"
"""How the adapter of zeros is called on the server, with something behind that tells engines apart."""

WAIT_S = 30.0
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


class NeutralBase:
    """Which name the base has on a server, and how many responses ask for it without one."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        """The adapter of zeros, while the server has it."""
        self.made: str | None = None
        """Its name, if it was put there from here."""
        self._folder: Path | None = None
        self._plain = 0
        self._none_plain = asyncio.Event()
        self._none_plain.set()

    @contextmanager
    def asking(self) -> Iterator[str | None]:
        """The name to ask for the base by, now; None: it has none yet."""
        if self.name is not None:
            yield self.name
            return
        self._plain += 1
        self._none_plain.clear()
        try:
            yield None
        finally:
            self._plain -= 1
            if not self._plain:
                self._none_plain.set()

    def lost(self, name: str) -> None:
        """The server has no adapter of this name any more: it was started anew."""
        if self.name == name:
            self.name = None

    async def make(self, like: Path) -> tuple[str, Path]:
        """A name and a folder for an adapter of zeros in the form of another. EngineError if it fails."""
        await self.remove()
        name = NAME + uuid4().hex[:8]
        self._folder = like.parent / f".{name}"
        await asyncio.to_thread(_write_zeros, like, self._folder)
        return name, self._folder

    async def serves(self, name: str) -> None:
        """The server has it. Returns when no response is under way that asked for the base without it.

        It waits a while and no longer: a client may read slowly, and on a server without adapters of others
        such a response stays right until there are as many as it has places for.
        """
        self.name = self.made = name
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await self._none_plain.wait()

    async def remove(self) -> None:
        """Its folder is needed for as long as the server may read it again."""
        folder, self._folder, self.name, self.made = self._folder, None, None, None
        if folder is not None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def known_neutral(models: Iterable[str]) -> str | None:
    """The adapter of zeros that an engine has on the server; None if there is none."""
    return next((name for name in sorted(models) if name.startswith(NAME)), None)


def _write_zeros(like: Path, folder: Path) -> None:
    """The adapter in `like` with zeros in place of its weights: header and sizes stay. Zero bytes are 0."""
    try:
        folder.mkdir(mode=0o700)
        shutil.copyfile(like / CONFIG, folder / CONFIG)
        with (like / WEIGHTS).open("rb") as source, (folder / WEIGHTS).open("wb") as zeros:
            length = source.read(8)
            header = source.read(struct.unpack("<Q", length)[0])
            ends = [each["data_offsets"][1] for name, each in json.loads(header).items() if name[:2] != "__"]
            zeros.write(length + header)
            zeros.truncate(8 + len(header) + max(ends, default=0))
    except (OSError, ValueError, LookupError, TypeError, struct.error) as error:
        with suppress(OSError):
            shutil.rmtree(folder)
        raise EngineError(f"the adapter in {like} cannot be read: {error}") from error
