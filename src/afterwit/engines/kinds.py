"""The table of engines: one entry per `engine.kind`. Torch is imported only when an engine needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Capabilities, Engine, Facts, Generate, Score
from afterwit.engines.server.server import ServerCommand
from afterwit.engines.server.settings import SglangSettings, VllmSettings
from afterwit.errors import ContextExceeded, RequestRefused, SettingError


def _with_kind(section: Any) -> Any:
    """A section that names no kind is the embedded engine's."""
    return {"kind": EmbeddedSettings().kind} | section if isinstance(section, dict) else section


AnySettings = EmbeddedSettings | VllmSettings | SglangSettings
EngineSettings = Annotated[AnySettings, Field(discriminator="kind"), BeforeValidator(_with_kind)]
"""The section `engine`: one class for each kind."""


async def _open_embedded(folder: Path, settings: EmbeddedSettings, takes_weights: bool) -> Engine:
    try:
        from afterwit.engines.embedded.engine import EmbeddedEngine
    except ImportError as error:
        raise SettingError(
            f"the embedded engine needs {error.name}: install Afterwit with its extra `local`"
        ) from error
    return await asyncio.to_thread(EmbeddedEngine.load, folder, settings)


async def _open_vllm(folder: Path, settings: VllmSettings, takes_weights: bool) -> Engine:
    from afterwit.engines.fleet.open import open_each
    from afterwit.engines.vllm.command import open_vllm

    return await open_each(folder, settings, open_vllm, takes_weights=takes_weights)


async def _open_sglang(folder: Path, settings: SglangSettings, takes_weights: bool) -> Engine:
    from afterwit.engines.fleet.open import open_each
    from afterwit.engines.sglang.command import open_sglang

    return await open_each(folder, settings, open_sglang, takes_weights=takes_weights)


KINDS: Mapping[str, Callable[[Path, Any, bool], Awaitable[Engine]]] = {
    "embedded": _open_embedded,
    "vllm": _open_vllm,
    "sglang": _open_sglang,
}
"""What opens each kind: it gets the model folder, the settings of its kind, and whether new
weights will come."""


def _launch_vllm(folder: Path, settings: VllmSettings, **at: Any) -> ServerCommand:
    from afterwit.engines.vllm.command import command

    return command(folder, settings, **at)


def _launch_sglang(folder: Path, settings: SglangSettings, **at: Any) -> ServerCommand:
    from afterwit.engines.sglang.command import command

    return command(folder, settings, **at)


LAUNCHERS: Mapping[str, Callable[..., ServerCommand]] = {"vllm": _launch_vllm, "sglang": _launch_sglang}
"""What starts a server of each kind that can be started: it gets the model folder, the settings of its kind,
and by name `host`, `port`, `lora_rank` and `more`, flags that those of the settings override."""


async def open_engine(folder: Path, settings: AnySettings, *, takes_weights: bool = True) -> Engine:
    """The engine of `settings.kind`, ready to serve the model. SettingError if it cannot serve it.

    Without `takes_weights`, a server may lack what only new weights need.
    """
    return await KINDS[settings.kind](folder, settings, takes_weights)


def check_fits(request: Generate, facts: Facts) -> None:
    """Raise RequestRefused if the request does not fit the model."""
    prompt, sampling = request.prompt_ids, request.sampling
    if not prompt:
        raise RequestRefused("The prompt has no tokens.", field="prompt")
    if len(prompt) >= facts.context_length:
        raise ContextExceeded(
            f"The prompt has {len(prompt)} tokens; context and answer share {facts.context_length}.",
            field="prompt",
        )
    if sampling.max_tokens < 1:
        raise RequestRefused(f"max_tokens is {sampling.max_tokens}.", field="max_tokens")
    _check_ids("prompt", (*prompt, *request.forced_prefix), facts.vocabulary)
    _check_ids("logit_bias", tuple(token for token, _ in sampling.logit_bias), facts.vocabulary)


def check_scores(rows: Sequence[Score], top: int, facts: Facts, capabilities: Capabilities) -> None:
    """Raise RequestRefused if a row does not fit the model, or the engine does not score like this."""
    if top > capabilities.scored_ids:
        raise RequestRefused(
            f"This engine scores {capabilities.scored_ids} ids a place, not {top}.", field="top"
        )
    for row in rows:
        if len(row) > facts.context_length:
            raise ContextExceeded(
                f"Prompt and response have {len(row)} tokens; the context {facts.context_length}.",
                field="prompt",
            )
        if row.tau != 1.0 and not capabilities.scored_tau:
            raise RequestRefused(f"This engine scores at temperature 1 alone, not {row.tau:g}.", field="tau")
        _check_ids("a row", (*row.prompt_ids, *row.response_ids), facts.vocabulary)


def _check_ids(field: str, ids: tuple[int, ...], vocabulary: int) -> None:
    if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
        raise RequestRefused(
            f"A token id of {field} is outside the model's vocabulary of {vocabulary}.", field=field
        )
