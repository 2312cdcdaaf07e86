"""Finds out what a vLLM server can do, and makes the command that starts one with all that Afterwit needs.

Missing features are listed with the flag that enables each.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.inspect import (
    TOP,
    Fit,
    basis_of,
    dtype_of,
    require_same_model,
    require_version,
    same_tokens,
    target_modules,
)
from afterwit.engines.server.server import ServerCommand
from afterwit.engines.server.settings import Swap, VllmSettings
from afterwit.engines.vllm.server import BACKGROUND, GENERATE, ZEROS, VllmServer, given_params
from afterwit.errors import SettingError
from afterwit.turn import Basis

OLDEST = (0, 32)
"""The oldest version of vLLM with all features used here."""
WORKER = Path(__file__).with_name("worker")
EXTENSION = "afterwit_vllm.Reload"
SAMPLES = "--enable-scale-out"
"""The flag that every server needs: it accepts ids."""
DEV_MODE = "VLLM_SERVER_DEV_MODE=1 in its environment"
RUNTIME_LORA = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment"
RELOAD = f"--worker-extension-cls {EXTENSION}, with PYTHONPATH={WORKER} in its environment"
NO_ADAPTER = "/afterwit/asks/whether/adapters/can/be/loaded"
CACHES = b'enable_prefix_caching="True"'
WIDTHS = (100, 50, 20, TOP)
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
    version = await _version(client)
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


async def is_vllm(client: ServerClient) -> bool:
    return await _version(client) is not None


async def _version(client: ServerClient) -> str | None:
    answer = await client.ask("GET", "/version")
    said = answer.json.get("version") if answer.status == 200 and isinstance(answer.json, Mapping) else None
    return None if said is None else str(said)


async def _missing(client: ServerClient, folder: Path, model: str, swap: Swap | None) -> AsyncIterator[str]:
    """Each flag or variable that the server was started without."""
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
    folder: Path, settings: VllmSettings, *, host: str, port: int, lora_rank: int, more: Sequence[str] = ()
) -> ServerCommand:
    """The command line and environment variables. SettingError if no flag makes room for the rank."""
    arguments = (
        *settings.command,
        *("serve", str(folder), "--host", host, "--port", str(port)),
        *("--dtype", dtype_of(folder, settings)),
        *flags(folder, settings, lora_rank=lora_rank),
        *more,
        *settings.flags,
    )
    return ServerCommand(arguments=arguments, environment=environment(settings))


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
    )
    if settings.swap == "whole":
        return (*needed, "--worker-extension-cls", EXTENSION)
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
