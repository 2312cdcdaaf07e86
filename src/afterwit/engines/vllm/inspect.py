"""What a vLLM server can do, found out by asking it. What is missing is named with the flag that gives it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.inspect import TOP, basis_of, require_same_model, restriction_of, same_tokens
from afterwit.engines.server.open import Fit
from afterwit.engines.server.settings import Swap
from afterwit.engines.vllm.server import BACKGROUND, GENERATE, VllmServer, known_neutral, params_of
from afterwit.errors import SettingError
from afterwit.turn import Basis

OLDEST = (0, 32)
"""The oldest version of vLLM that has all that is asked for here."""

WORKER = Path(__file__).with_name("worker")
EXTENSION = "afterwit_vllm.Reload"
SAMPLES = "--enable-scale-out"
"""What a server needs that takes ids, whatever it does with them."""

DEV_MODE = "VLLM_SERVER_DEV_MODE=1 in its environment"
RUNTIME_LORA = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment"
RELOAD = f"--worker-extension-cls {EXTENSION}, with PYTHONPATH={WORKER} in its environment"
NO_ADAPTER = "/afterwit/asks/whether/adapters/can/be/loaded"
ASKED = (1, 1)
"""A prompt; vLLM 0.32 on a CPU dies at one of a single id if the model has linear attention."""

CACHES = b'enable_prefix_caching="True"'
WIDTHS = (100, 50, 20, TOP)
"""Rows of the teacher that a server is asked for, the widest first; nobody asks for wider ones."""


async def inspect(client: ServerClient, folder: Path, swap: Swap | None, *, any_weights: bool = False) -> Fit:
    """What the server is. SettingError names everything that is missing for the model in `folder`.

    With `any_weights` only the tokenizer must be the folder's.
    """
    await _require_version(client)
    model, root, context_length = await _base_model(client)
    if not any_weights:
        await asyncio.to_thread(require_same_model, folder, root, url=client.url)
    tokens = await same_tokens(client, folder, root, named={"model": model})
    missing = [flag async for flag in _missing(client, folder, model, swap)]
    if missing:
        raise SettingError(f"the vLLM server at {client.url} must be started with {'; and '.join(missing)}")

    async def top_at(temperature: float) -> list[float]:
        answer = (await client.post(GENERATE, _body(model, tokens, temperature=temperature))).json
        (row,) = answer["choices"][0]["logprobs"]["content"]
        return [each["logprob"] for each in row["top_logprobs"] if each["rank"] <= TOP]

    background = _body(model, tokens, priority=BACKGROUND)
    basis = await basis_of(top_at)
    return Fit(
        server=VllmServer(
            client,
            model=model,
            root=root,
            priorities=(await client.ask("POST", GENERATE, background)).status == 200,
            labels=(await client.ask("GET", "/weight_info")).status == 200,
            neutral=known_neutral(await _models(client)) if any_weights else None,
            caches=await _caches(client),
            raw=basis is Basis.RAW,
        ),
        context_length=context_length,
        dtype=await _dtype(client),
        basis=basis,
        scored_ids=await _scored_ids(client, model, tokens),
        scores_given=await _scores_rows(client, model),
        keeps_schemas=await _keeps_schemas(client, model, tokens),
    )


async def is_vllm(client: ServerClient) -> bool:
    """Whether it is a vLLM server at all."""
    return await _version(client) is not None


async def _version(client: ServerClient) -> str | None:
    answer = await client.ask("GET", "/version")
    said = answer.json.get("version") if answer.status == 200 and isinstance(answer.json, Mapping) else None
    return None if said is None else str(said)


async def _require_version(client: ServerClient) -> None:
    """SettingError unless it is a vLLM server that is new enough."""
    said = await _version(client)
    if said is None:
        raise SettingError(f"the server at {client.url} is no vLLM server: it has no /version")
    numbers = re.match(r"(\d+)\.(\d+)", said)
    if numbers is None or tuple(map(int, numbers.groups())) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise SettingError(f"the server at {client.url} is vLLM {said}: version {wanted} or newer is needed")


async def _models(client: ServerClient) -> set[str]:
    return {each["id"] for each in (await client.get("/v1/models")).json["data"]}


async def _base_model(client: ServerClient) -> tuple[str, str, int]:
    """The served name, the root and the context length of the model without adapter."""
    models = (await client.get("/v1/models")).json["data"]
    base = next(each for each in models if not each.get("parent"))
    return base["id"], base["root"], base["max_model_len"]


async def _missing(client: ServerClient, folder: Path, model: str, swap: Swap | None) -> Any:
    """Each flag or variable that the server was not started with."""
    answer = await client.ask("POST", GENERATE, _body(model, ASKED))
    if answer.status in (403, 404):
        yield SAMPLES
    elif answer.status == 400 and "logprobs" in answer.words:
        yield f"--max-logprobs {TOP} or more"
    elif answer.status != 200:
        raise SettingError(f"the vLLM server at {client.url} does not sample: {answer.words}")
    if swap == "adapters":
        body = {"lora_name": "afterwit-asks", "lora_path": NO_ADAPTER}
        answer = await client.ask("POST", "/v1/load_lora_adapter", body)
        if answer.status != 200 and NO_ADAPTER not in answer.words:
            routed = answer.status != 404 and answer.status != 405
            yield "--enable-lora" if routed else f"--enable-lora, and {RUNTIME_LORA}"
        lora = (await _config(client)).get("lora_config")
        if lora and not lora["target_modules"] and (restriction := restriction_of(folder)):
            yield " ".join(restriction)
    if swap != "whole":
        return
    if (await client.ask("GET", "/weight_info")).status != 200:
        yield DEV_MODE
    if (await client.ask("POST", "/collective_rpc", {"method": "afterwit_ping"})).status != 200:
        yield RELOAD


async def _dtype(client: ServerClient) -> str | None:
    """What it computes in; None without development mode, in which it does not say."""
    config = await _config(client)
    return str(config["model_config"]["dtype"]).removeprefix("torch.") if config else None


async def _config(client: ServerClient) -> Mapping[str, Any]:
    """How the server was started; {} without development mode, in which it does not say."""
    answer = await client.ask("GET", "/server_info?config_format=json")
    if answer.status != 200:
        return {}
    found: Mapping[str, Any] = answer.json["vllm_config"]
    return found


async def _scored_ids(client: ServerClient, model: str, tokens: Sequence[int]) -> int:
    """The most that it does not refuse, of WIDTHS, or what its refusal names."""
    for width in WIDTHS:
        body = _body(model, tokens)
        params = {**body["sampling_params"], "prompt_logprobs": width}
        answer = await client.ask("POST", GENERATE, {**body, "sampling_params": params})
        if answer.status == 200:
            return width
        if (named := re.search(r"max allowed: (\d+)", answer.words)) is not None:
            return int(named[1])
    return 0


async def _keeps_schemas(client: ServerClient, model: str, tokens: Sequence[int]) -> bool:
    body = _body(model, tokens)
    params = {**body["sampling_params"], "structured_outputs": {"json": '{"const": 7}'}}
    answer = await client.ask("POST", GENERATE, {**body, "sampling_params": params, "reasoning_ended": True})
    return answer.status == 200


async def _caches(client: ServerClient) -> bool:
    """Whether it finds again what it has read: then what follows a known beginning is cheap to ask for."""
    answer = await client.ask("GET", "/metrics")
    return answer.status == 200 and CACHES in answer.body


async def _scores_rows(client: ServerClient, model: str) -> bool:
    """Whether one call scores given ids of all places."""
    params = {"max_tokens": 1, **params_of([(1,)], 1)}
    body = {"model": model, "token_ids": [1, 1], "sampling_params": params}
    return (await client.ask("POST", GENERATE, body)).status == 200


def _body(
    model: str, tokens: Sequence[int], *, temperature: float = 1.0, priority: int = 0
) -> dict[str, Any]:
    params = {"max_tokens": 1, "temperature": temperature, "logprobs": TOP, "seed": 0, "detokenize": False}
    return {"model": model, "token_ids": list(tokens), "sampling_params": params, "priority": priority}
