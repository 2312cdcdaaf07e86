"""Finds out what an SGLang server can do, and makes the command that starts one with all that Afterwit needs.

Missing features are listed with the flag that enables each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from afterwit.chat_format.folder import end_ids
from afterwit.engines.model_files import tokenizer_of
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.inspect import (
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
from afterwit.engines.server.server import ServerCommand
from afterwit.engines.server.settings import SglangSettings, Swap
from afterwit.engines.sglang.server import GENERATE, SglangServer, Traits
from afterwit.errors import SettingError

OLDEST = (0, 5, 23)
"""The oldest version of SGLang with all features used here."""
WIDEST = 100
"""Most ids per position to ask for. The server itself has no limit."""
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
    server = await _server_info(client)
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
        scored_ids=WIDEST,
        constraint=server.get("grammar_backend") not in (None, "none"),
        dtype=None if server["dtype"] == "auto" else server["dtype"],
        scores_given=True,
    )


async def is_sglang(client: ServerClient) -> bool:
    return await _server_info(client) is not None


async def _server_info(client: ServerClient) -> Mapping[str, Any] | None:
    """The server's configuration; None if it is not an SGLang server."""
    answer = await client.ask("GET", "/server_info")
    found = answer.json if answer.status == 200 else None
    return found if isinstance(found, Mapping) and "max_req_input_len" in found else None


def _missing(server: Mapping[str, Any], folder: Path, swap: Swap | None) -> Iterator[str]:
    """Each flag that the server was started without."""
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
    folder: Path, settings: SglangSettings, *, host: str, port: int, lora_rank: int, more: Sequence[str] = ()
) -> ServerCommand:
    """The command line. EngineError if the model's weights cannot be read."""
    arguments = (
        *settings.command,
        *("--model-path", str(folder), "--host", host, "--port", str(port)),
        *("--dtype", dtype_of(folder, settings)),
        *flags(folder, settings, lora_rank=lora_rank),
        *more,
        *settings.flags,
    )
    return ServerCommand(arguments=arguments)


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
    return (
        *needed,
        *("--enable-lora", "--max-lora-rank", str(lora_rank), "--lora-target-modules", *modules),
    )
