"""What an engine over a server can do, by the way in which new weights come."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from afterwit.chat_format.folder import end_ids, read_json, special_tokens
from afterwit.engines.fingerprint import fingerprint
from afterwit.engines.port import Capabilities, Facts
from afterwit.engines.server.client import ServerClient, ServerFailed
from afterwit.engines.server.settings import ServerSettings, Swap
from afterwit.engines.server.swaps import shapes_of
from afterwit.errors import AfterwitError, EngineError, EngineUnavailable, NobodyAnswers, SettingError
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


def capabilities(
    basis: Basis, context_length: int, scored_ids: int, swap: Swap | None, *, keeps_schemas: bool = False
) -> Capabilities:
    """`swap` is None if no new weights will come."""
    return Capabilities(
        basis=basis,
        base_weights=swap != "whole",
        forced_prefix=True,
        whole_weights=swap == "whole",
        adapters=swap == "adapters",
        own_adapters=swap == "adapters",
        constraint=keeps_schemas,
        top_logprobs=min(scored_ids, MOST_ALTERNATIVES),
        scored_ids=scored_ids,
        longest_probe=context_length - 1,
        remedies=REMEDIES,
    )


HOT, COLD = 1.0, 0.5
TOP = 5
"""Ids whose log-probs are compared."""


async def basis_of(top_at: Callable[[float], Awaitable[list[float]]]) -> Basis:
    """Whether log-probs change with the temperature: at half of it, processed ones lie twice as far apart.

    `top_at` gives the log-probs of the likeliest ids at a temperature.
    """
    hot, cold = [max(values) - min(values) for values in (await top_at(HOT), await top_at(COLD))]
    return Basis.PROCESSED if cold > 1.5 * hot else Basis.RAW


def facts_of(
    folder: Path, settings: ServerSettings, *, kind: str, context_length: int, dtype: str | None
) -> Facts:
    """The engine's facts; `dtype` is what the server says that it computes in, None if it does not say."""
    tokenizer = tokenizer_of(folder)
    return Facts(
        name=kind,
        model=folder.resolve().name,
        context_length=context_length,
        vocabulary=vocabulary_of(folder),
        end_ids=end_ids(folder, tokenizer.token_to_id),
        dtype=dtype if settings.dtype == "auto" and dtype is not None else dtype_of(folder, settings),
        fingerprint=fingerprint(folder),
    )


def vocabulary_of(folder: Path) -> int:
    """How many ids the model has a logit for."""
    size: int = _text_config(folder)["vocab_size"]
    return size


def dtype_of(folder: Path, settings: ServerSettings) -> str:
    """What a server that does not say computes in: the setting, else what the folder's weights are."""
    if settings.dtype != "auto":
        return settings.dtype
    config = _text_config(folder)
    return str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")


def _text_config(folder: Path) -> dict[str, Any]:
    config = read_json(folder / "config.json")
    return config | (config.get("text_config") or {})


def require_same_model(folder: Path, served: str, *, url: str) -> None:
    """SettingError with both hashes if `served` is a folder here that holds another model than `folder`.

    A server on another machine names a folder or hub id that cannot be read: nothing is said about it.
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


ALL = ("all",)
FLAG = "--lora-target-modules"
"""Of both kinds of server."""

PROJECTION = re.compile(r"^(?!.*(?:vision|visual)).*\.(\w+_proj(?:_[a-z]+)?)\.weight$")
"""A linear layer of no image tower; experts that lie in one tensor are called likewise, without `.weight`."""


def restriction_of(folder: Path) -> tuple[str, ...]:
    """The flag and its values; () if the names are not known."""
    modules = adapted_modules(folder)
    return () if modules == ALL else (FLAG, *modules)


def adapted_modules(folder: Path) -> tuple[str, ...]:
    """Such as q_proj, down_proj and in_proj_qkv: the last part of the names of the model's projections.

    ("all",) if its weights are in no safetensors files or are called otherwise.
    """
    found = (PROJECTION.search(name) for name in shapes_of(folder))
    return tuple(sorted({match[1] for match in found if match})) or ALL


DEAD = "EngineCore encountered an issue"
"""What vLLM answers once its engine has died."""

LOOK_AGAIN_S = LEAST_TRY_S = 1.0
log = logging.getLogger(__name__)


async def answered(client: ServerClient, path: str, *, called: str, patience_s: float) -> None:
    """Return when a GET of `path` is answered. NobodyAnswers if no server does so within `patience_s`
    seconds.

    `called`: what kind of server it should be, for people. The log says once that it is waited for. Each
    try has at least `LEAST_TRY_S`: one that is cut off sooner would hide why the one before it failed.
    """
    now = asyncio.get_running_loop().time
    until = now() + patience_s
    told = False
    while True:
        try:
            await client.get(path, within_s=max(until - now(), LEAST_TRY_S))
            return
        except EngineUnavailable as error:
            if until - now() <= LOOK_AGAIN_S:
                raise NobodyAnswers(
                    f"no {called} server answered at {client.url} within {patience_s:g} s ({error}): start "
                    "it, let `afterwit up` start one, or correct engine.url"
                ) from error
            if not told:
                log.info("waiting up to %g s for a %s server: %s", patience_s, called, error)
            told = True
            await asyncio.sleep(LOOK_AGAIN_S)


async def gone(error: EngineError, check: Callable[[], Awaitable[object]]) -> EngineUnavailable | None:
    """That a server cannot serve after a fault of its own; None if it can, or if the fault was ours.

    The process that answers outlives the one that computes by a few seconds. `check` raises if it is not fit.
    """
    if not any(isinstance(each, ServerFailed) for each in (error, error.__cause__)):
        return None
    if DEAD in str(error):
        return EngineUnavailable(f"the server's engine died: {error}")
    try:
        await check()
    except AfterwitError as found:
        return EngineUnavailable(f"{error}; then {found}")
    return None


WORDS = 'Read notes/todo.txt, then answer: {"total": 1207.5} — naïve? 東京 🙂\n\n\tdone'
"""A text that different tokenizers cut differently."""


async def same_tokens(
    client: ServerClient, folder: Path, served: str, *, named: Mapping[str, Any] | None = None
) -> tuple[int, ...]:
    """The ids of a text. SettingError unless the server and the folder cut it into the same ones.

    `served` is what the server serves, for people; `named` joins the question, for servers of several models.
    """
    words = await asyncio.to_thread(words_of, folder)
    body = {"prompt": words, "add_special_tokens": False, **(named or {})}
    theirs = tuple((await client.post("/tokenize", body)).json["tokens"])
    tokenizer = await asyncio.to_thread(tokenizer_of, folder)
    ours = tuple(tokenizer.encode(words, add_special_tokens=False).ids)
    if theirs != ours:
        raise SettingError(
            f"the server at {client.url} serves {served}, whose tokenizer is not that of {folder}: of one "
            f"text it makes {len(theirs)} ids and the folder {len(ours)}; start both with the same model"
        )
    return ours


def words_of(folder: Path) -> str:
    """`WORDS` and the model's own special tokens, which tell relatives apart."""
    return WORDS + "".join(special_tokens(folder).values())


def tokenizer_of(folder: Path) -> Tokenizer:
    """The folder's tokenizer. SettingError if it cannot be read."""
    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise SettingError(f"{path} cannot be read: {error}") from error
