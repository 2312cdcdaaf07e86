"""What an SGLang server can do, found out by asking it. What misses is named with the flag that gives it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterwit.core.errors import SettingError
from afterwit.core.turn import Basis
from afterwit.engines.port import Capabilities
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.facts import WORDS, require_same_model, require_same_tokens
from afterwit.engines.server.settings import Swap
from afterwit.engines.sglang.modules import adapted_modules
from afterwit.engines.sglang.server import GENERATE, Manner

OLDEST = (0, 5, 23)
"""The oldest version of SGLang that has all that is asked for here."""
HOT, COLD, TOP = 1.0, 0.5, 5
WIDEST = 100
"""Ids of a place that it is asked for at most. The server has no limit of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A server that is fit for the model."""

    manner: Manner
    context_length: int
    dtype: str | None
    """None: whatever the model's config.json says."""
    basis: Basis


async def inspect(client: ServerClient, folder: Path, swap: Swap | None, ends: frozenset[int]) -> Found:
    """What the server is. SettingError names everything that is missing for the model in `folder`.

    `ends` are the model's end ids.
    """
    server = await server_info(client)
    await asyncio.to_thread(require_same_model, folder, server["model_path"], url=client.url)
    body = {"prompt": WORDS, "add_special_tokens": False}
    tokens = (await client.post("/tokenize", body)).json["tokens"]
    await asyncio.to_thread(require_same_tokens, folder, tokens, url=client.url, model=server["model_path"])
    if missing := list(_missing(server, folder, swap)):
        raise SettingError(f"the SGLang server at {client.url} must be started with {'; and '.join(missing)}")
    return Found(
        manner=Manner(
            tokenizer=server["tokenizer_path"],
            ends=ends,
            incremental=bool(server["incremental_streaming_output"]),
            background=_background(server),
        ),
        context_length=server["max_req_input_len"],
        dtype=None if server["dtype"] == "auto" else server["dtype"],
        basis=await _basis(client, tokens),
    )


def capabilities(found: Found, swap: Swap | None) -> Capabilities:
    """What the engine can do over this server. `swap` is None if no new weights will come."""
    return Capabilities(
        basis=found.basis,
        base_weights=swap != "whole",
        forced_prefix=True,
        whole_weights=swap == "whole",
        adapters=swap == "adapters",
        scored_ids=WIDEST,
        longest_probe=found.context_length - 1,
        remedies={
            "adapters": 'set engine.swap = "adapters", or learner.lora_rank = 0',
            "whole_weights": 'set engine.swap = "whole", or learner.lora_rank above 0, such as 16',
            "base_weights": 'set engine.swap = "adapters" and learner.lora_rank above 0, or judge.weights = '
            '"live", or name another judge in judge.url',
        },
    )


async def is_sglang(client: ServerClient) -> bool:
    """Whether it is an SGLang server at all."""
    return await _told(client) is not None


async def _told(client: ServerClient) -> Mapping[str, Any] | None:
    answer = await client.ask("GET", "/server_info")
    found = answer.json if answer.status == 200 else None
    return found if isinstance(found, Mapping) and "max_req_input_len" in found else None


async def server_info(client: ServerClient) -> Mapping[str, Any]:
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


async def _basis(client: ServerClient, tokens: Sequence[int]) -> Basis:
    """Whether log-probs change with the temperature: at half of it, processed ones lie twice as far apart."""
    spans = []
    for temperature in (HOT, COLD):
        body = {
            "input_ids": list(tokens),
            "sampling_params": {"max_new_tokens": 1, "temperature": temperature},
            "return_logprob": True,
            "top_logprobs_num": TOP,
        }
        (row,) = (await client.post(GENERATE, body)).json["meta_info"]["output_top_logprobs"]
        values = sorted(each[0] for each in row)
        spans.append(values[-1] - values[0])
    return Basis.PROCESSED if spans[1] > 1.5 * spans[0] else Basis.RAW
