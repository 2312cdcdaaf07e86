"""Checks that a server is fit for the model: same tokenizer, same weights, and the features it needs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterwit.chat_format.folder import read_json, special_tokens, tokenizer_of
from afterwit.engines.model_files import fingerprint, shapes_of
from afterwit.engines.port import Capabilities
from afterwit.engines.server.client import ServerClient
from afterwit.engines.server.server import Server
from afterwit.engines.server.settings import ServerSettings, Swap
from afterwit.errors import SettingError
from afterwit.turn import Basis

REMEDIES = {
    "adapters": 'set engine.swap = "adapters", or learner.lora_rank = 0',
    "whole_weights": 'set engine.swap = "whole", or learner.lora_rank above 0, such as 16',
    "base_weights": 'set engine.swap = "adapters" and learner.lora_rank above 0, or judge.weights = "live", '
    "or name another judge in judge.url",
    "constraint": "start the engine's server with a grammar library (SGLang: --grammar-backend llguidance)",
    "top_logprobs": "start the engine's server with a larger --max-logprobs",
}
MOST_ALTERNATIVES = 20
"""Alternatives of a token: clients may ask for no more."""
MOST_SCORED = 100
"""Most ids per position to ask for."""
TOP = 5
"""Ids whose log-probs are compared to find the basis."""
TARGET_MODULES = "--lora-target-modules"
"""A flag of both kinds of server."""
PROJECTION = re.compile(r"^(?!.*(?:vision|visual)).*\.(\w+_proj(?:_[a-z]+)?)\.weight$")
"""A linear layer outside image towers. Experts in one tensor have such names without `.weight`."""
ALL = ("all",)
TEXT = 'Read notes/todo.txt, then answer: {"total": 1207.5} — naïve? 東京 🙂\n\n\tdone'
"""Different tokenizers split this text differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A server that is fit for the model, and what it can do."""

    server: Server
    swap: Swap | None
    """None: no new weights will come."""
    basis: Basis
    context_length: int
    dtype: str | None
    """Precision of its computation; None: it does not report it."""
    scored_ids: int
    constraint: bool
    scores_given: bool
    """Implements `Server.logprobs_at`."""
    own_adapters: bool = True
    """Has room for several adapters at once."""
    longest_probe: int | None = None
    """Most ids that a probe may have; None: as many as the context."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            basis=self.basis,
            base_weights=self.swap != "whole",
            forced_prefix=True,
            whole_weights=self.swap == "whole",
            adapters=self.swap == "adapters",
            own_adapters=self.own_adapters and self.swap == "adapters",
            constraint=self.constraint,
            top_logprobs=min(self.scored_ids, MOST_ALTERNATIVES),
            scored_ids=self.scored_ids,
            longest_probe=self.longest_probe or self.context_length - 1,
            remedies=REMEDIES,
        )


async def basis_of(top_at: Callable[[float], Awaitable[list[float]]]) -> Basis:
    """Whether log-probs change with the temperature: at half of it, processed ones differ twice
    as much.

    `top_at` returns the log-probs of the most likely ids at a temperature.
    """
    hot, cold = [max(values) - min(values) for values in (await top_at(1.0), await top_at(0.5))]
    return Basis.PROCESSED if cold > 1.5 * hot else Basis.RAW


def vocabulary_of(folder: Path) -> int:
    size: int = _text_config(folder)["vocab_size"]
    return size


def dtype_of(folder: Path, settings: ServerSettings) -> str:
    """The precision of a server that does not report it: the setting, else that of the folder's weights."""
    if settings.dtype != "auto":
        return settings.dtype
    config = _text_config(folder)
    return str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")


def _text_config(folder: Path) -> dict[str, Any]:
    config = read_json(folder / "config.json")
    return config | (config.get("text_config") or {})


def require_same_model(folder: Path, served: str, *, url: str) -> None:
    """SettingError with both hashes if `served` is a folder on this machine with another model than `folder`.

    A server on another machine names a folder or hub id that cannot be read here: it is not checked.
    """
    theirs = Path(served)
    if not (theirs / "config.json").is_file() or theirs.resolve() == folder.resolve():
        return
    one, two = fingerprint(folder), fingerprint(theirs)
    if one != two:
        raise SettingError(
            f"the server at {url} serves {served} ({two[:12]}), but the model here is {folder} ({one[:12]}): "
            "start both with the same model"
        )


def require_version(said: str, oldest: tuple[int, ...], *, url: str, label: str) -> None:
    """SettingError if the server's version is older."""
    numbers = re.match(r"\d+(?:\.\d+)*", said)
    if numbers is None or tuple(map(int, numbers[0].split("."))) < oldest:
        wanted = ".".join(map(str, oldest))
        raise SettingError(f"the server at {url} is {label} {said}: version {wanted} or newer is needed")


async def same_tokens(
    client: ServerClient,
    folder: Path,
    served: str,
    *,
    field: str = "prompt",
    named: Mapping[str, Any] | None = None,
) -> tuple[int, ...]:
    """The ids of a text. SettingError unless the server and the folder split it into the same ones.

    `served` is the server's model in messages; `field` is the text's name in the request, to which `named` is
    added.
    """
    # the model's own special tokens distinguish relatives
    text = TEXT + "".join((await asyncio.to_thread(special_tokens, folder)).values())
    body = {field: text, "add_special_tokens": False, **(named or {})}
    theirs = tuple((await client.post("/tokenize", body)).json["tokens"])
    tokenizer = await asyncio.to_thread(tokenizer_of, folder)
    ours = tuple(tokenizer.encode(text, add_special_tokens=False).ids)
    if theirs != ours:
        raise SettingError(
            f"the server at {client.url} serves {served}, whose tokenizer is not that of {folder}: it "
            f"encodes a text as {len(theirs)} ids, the folder as {len(ours)}; start both with the same model"
        )
    return ours


def adapted_modules(folder: Path) -> tuple[str, ...]:
    """The last part of the names of the model's projections, such as q_proj, down_proj and in_proj_qkv.

    ("all",) if the weights are not in safetensors files or have other names.
    """
    found = (PROJECTION.search(name) for name in shapes_of(folder))
    return tuple(sorted({match[1] for match in found if match})) or ALL


def target_modules(folder: Path) -> tuple[str, ...]:
    """The flag that restricts adapters to the projections, with its values; () if their names are unknown."""
    modules = adapted_modules(folder)
    return () if modules == ALL else (TARGET_MODULES, *modules)
