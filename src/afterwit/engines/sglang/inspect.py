"""What an SGLang server can do, found out by asking it. What misses is named with the flag that gives it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from afterwit.chat_format.folder import end_ids
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.inspect import (
    TOP,
    adapted_modules,
    basis_of,
    require_same_model,
    same_tokens,
    tokenizer_of,
    vocabulary_of,
)
from afterwit.engines.server.open import Fit
from afterwit.engines.server.settings import Swap
from afterwit.engines.sglang.server import GENERATE, Manner, SglangServer
from afterwit.errors import SettingError

OLDEST = (0, 5, 23)
"""The oldest version of SGLang that has all that is asked for here."""

WIDEST = 100
"""Ids of a place that it is asked for at most. The server has no limit of its own."""


async def inspect(client: ServerClient, folder: Path, swap: Swap | None, *, any_weights: bool = False) -> Fit:
    """What the server is. SettingError names everything that is missing for the model in `folder`.

    With `any_weights` only the tokenizer must be the folder's.
    """
    server = await _server_info(client)
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

    manner = Manner(
        tokenizer=server["tokenizer_path"],
        last=vocabulary_of(folder) - 1,
        ends=end_ids(folder, tokenizer_of(folder).token_to_id),
        incremental=bool(server["incremental_streaming_output"]),
        background=_background(server),
    )
    return Fit(
        server=SglangServer(client, manner),
        context_length=server["max_req_input_len"],
        dtype=None if server["dtype"] == "auto" else server["dtype"],
        basis=await basis_of(top_at),
        scored_ids=WIDEST,
        scores_given=True,
        keeps_schemas=server.get("grammar_backend") not in (None, "none"),
    )


async def is_sglang(client: ServerClient) -> bool:
    """Whether it is an SGLang server at all."""
    return await _told(client) is not None


async def _told(client: ServerClient) -> Mapping[str, Any] | None:
    answer = await client.ask("GET", "/server_info")
    found = answer.json if answer.status == 200 else None
    return found if isinstance(found, Mapping) and "max_req_input_len" in found else None


async def _server_info(client: ServerClient) -> Mapping[str, Any]:
    """How it was started. SettingError if it is no SGLang server, or one that is too old."""
    found = await _told(client)
    if found is None:
        raise SettingError(f"the server at {client.url} is no SGLang server: it has no /server_info of one")
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", found["version"])
    if numbers is None or tuple(map(int, numbers.groups())) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise SettingError(
            f"the server at {client.url} is SGLang {found['version']}: version {wanted} or newer is needed"
        )
    return found


def _missing(server: Mapping[str, Any], folder: Path, swap: Swap | None) -> Iterator[str]:
    """Each flag that the server was not started with."""
    if swap != "adapters":
        return
    wanted = adapted_modules(folder)
    modules = f"--lora-target-modules {' '.join(wanted)}"
    if not server["enable_lora"]:
        yield f"--enable-lora --max-lora-rank 16 {modules}"
    elif server["dp_size"] != 1:
        yield "--dp-size 1: adapters cannot be loaded beside each other otherwise"
    elif not (given := set(server["lora_target_modules"] or ())) & {"all"} and not given >= set(wanted):
        yield modules


def _background(server: Mapping[str, Any]) -> int | None:
    """The priority that comes after 0."""
    if not server["enable_priority_scheduling"]:
        return None
    return 1 if server["schedule_low_priority_values_first"] else -1
