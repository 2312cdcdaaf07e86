"""What a vLLM server can do, found out by asking it. What is missing is named with the flag that gives it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterwit.core.errors import SettingError
from afterwit.core.turn import Basis
from afterwit.engines.port import Capabilities
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.facts import require_same_model, require_same_tokens, words_of
from afterwit.engines.server.settings import Swap
from afterwit.engines.vllm.server import BACKGROUND, GENERATE

OLDEST = (0, 32)
"""The oldest version of vLLM that has all that is asked for here."""
WORKER = Path(__file__).with_name("worker")
EXTENSION = "afterwit_vllm.Reload"
DEV_MODE = "VLLM_SERVER_DEV_MODE=1 in its environment"
RUNTIME_LORA = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment"
RELOAD = f"--worker-extension-cls {EXTENSION}, with PYTHONPATH={WORKER} in its environment"
NO_ADAPTER = "/afterwit/asks/whether/adapters/can/be/loaded"
HOT, COLD, TOP = 1.0, 0.5, 5
WIDTHS = (100, 50, 20, TOP)
"""Rows of the teacher that a server is asked for, the widest first; nobody asks for wider ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A server that is fit for the model."""

    model: str
    """The served name of the model without adapter."""
    root: str
    """Where the server read it from."""
    context_length: int
    dtype: str | None
    """None: it does not say, because it does not run in development mode."""
    basis: Basis
    priorities: bool
    labels: bool
    scored_ids: int
    """Most ids of a prompt's place that it tells: --max-logprobs."""


async def inspect(client: ServerClient, folder: Path, swap: Swap | None) -> Found:
    """What the server is. SettingError names everything that is missing for the model in `folder`."""
    await require_version(client)
    model, root, context_length = await base_model(client)
    await asyncio.to_thread(require_same_model, folder, root, url=client.url)
    words = await asyncio.to_thread(words_of, folder)
    body = {"model": model, "prompt": words, "add_special_tokens": False}
    tokens = (await client.post("/tokenize", body)).json["tokens"]
    await asyncio.to_thread(require_same_tokens, folder, tokens, url=client.url, model=root, words=words)
    missing = [flag async for flag in _missing(client, model, swap)]
    if missing:
        raise SettingError(f"the vLLM server at {client.url} must be started with {'; and '.join(missing)}")
    config = await _config(client)
    return Found(
        model=model,
        root=root,
        context_length=context_length,
        dtype=None if config is None else str(config["dtype"]).removeprefix("torch."),
        basis=await _basis(client, model, tokens),
        priorities=(await client.ask("POST", GENERATE, _body(model, tokens, priority=BACKGROUND))).status
        == 200,
        scored_ids=await _scored_ids(client, model, tokens),
        labels=(await client.ask("GET", "/weight_info")).status == 200,
    )


def capabilities(found: Found, swap: Swap | None) -> Capabilities:
    """What the engine can do over this server. `swap` is None if no new weights will come."""
    return Capabilities(
        basis=found.basis,
        base_weights=swap != "whole",
        forced_prefix=True,
        whole_weights=swap == "whole",
        adapters=swap == "adapters",
        scored_ids=found.scored_ids,
        longest_probe=found.context_length - 1,
        remedies={
            "adapters": 'set engine.swap = "adapters", or learner.lora_rank = 0',
            "whole_weights": 'set engine.swap = "whole", or learner.lora_rank above 0, such as 16',
            "base_weights": 'set engine.swap = "adapters" and learner.lora_rank above 0, or judge.weights = '
            '"live", or name another judge in judge.url',
        },
    )


async def is_vllm(client: ServerClient) -> bool:
    """Whether it is a vLLM server at all."""
    return await _version(client) is not None


async def _version(client: ServerClient) -> str | None:
    answer = await client.ask("GET", "/version")
    said = answer.json.get("version") if answer.status == 200 and isinstance(answer.json, Mapping) else None
    return None if said is None else str(said)


async def require_version(client: ServerClient) -> None:
    """SettingError unless it is a vLLM server that is new enough."""
    said = await _version(client)
    if said is None:
        raise SettingError(f"the server at {client.url} is no vLLM server: it has no /version")
    numbers = re.match(r"(\d+)\.(\d+)", said)
    if numbers is None or tuple(map(int, numbers.groups())) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise SettingError(f"the server at {client.url} is vLLM {said}: version {wanted} or newer is needed")


async def base_model(client: ServerClient) -> tuple[str, str, int]:
    """The served name, the root and the context length of the model without adapter."""
    models = (await client.get("/v1/models")).json["data"]
    base = next(each for each in models if not each.get("parent"))
    return base["id"], base["root"], base["max_model_len"]


async def _missing(client: ServerClient, model: str, swap: Swap | None) -> Any:
    """Each flag or variable that the server was not started with."""
    answer = await client.ask("POST", GENERATE, _body(model, [1]))
    if answer.status in (403, 404):
        yield "--enable-scale-out"
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
    if swap != "whole":
        return
    if (await client.ask("GET", "/weight_info")).status != 200:
        yield DEV_MODE
    if (await client.ask("POST", "/collective_rpc", {"method": "afterwit_ping"})).status != 200:
        yield RELOAD


async def _config(client: ServerClient) -> Mapping[str, Any] | None:
    """The server's own configuration of the model; None without development mode."""
    answer = await client.ask("GET", "/server_info?config_format=json")
    if answer.status != 200:
        return None
    found: Mapping[str, Any] = answer.json["vllm_config"]["model_config"]
    return found


async def _basis(client: ServerClient, model: str, tokens: Sequence[int]) -> Basis:
    """Whether log-probs change with the temperature: at half of it, processed ones lie twice as far apart."""
    spans = []
    for temperature in (HOT, COLD):
        answer = (await client.post(GENERATE, _body(model, tokens, temperature=temperature))).json
        (row,) = answer["choices"][0]["logprobs"]["content"]
        values = sorted(each["logprob"] for each in row["top_logprobs"] if each["rank"] <= TOP)
        spans.append(values[-1] - values[0])
    return Basis.PROCESSED if spans[1] > 1.5 * spans[0] else Basis.RAW


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


def _body(
    model: str, tokens: Sequence[int], *, temperature: float = HOT, priority: int = 0
) -> dict[str, Any]:
    params = {"max_tokens": 1, "temperature": temperature, "logprobs": TOP, "seed": 0, "detokenize": False}
    return {"model": model, "token_ids": list(tokens), "sampling_params": params, "priority": priority}
