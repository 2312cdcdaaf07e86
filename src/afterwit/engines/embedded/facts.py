"""What the embedded engine says about a model folder. No torch: the configuration is a plain mapping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from afterwit.core.errors import SettingError
from afterwit.core.turn import Basis
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.embedded.support import context_of, refusal
from afterwit.engines.fingerprint import fingerprint
from afterwit.engines.port import Capabilities, Facts
from afterwit.wire.model_text.folder import end_ids

CAPABILITIES = Capabilities(
    basis=Basis.PROCESSED,
    base_weights=True,
    forced_prefix=True,
    whole_weights=True,
    adapters=True,
    constraint=True,
    top_logprobs=20,
    scored_tau=True,
)


def facts_of(folder: Path, config: Mapping[str, Any], settings: EmbeddedSettings, *, dtype: str) -> Facts:
    """The engine's facts; `config` is the text model's. SettingError if it cannot serve this model."""
    context_length = context_of(config, settings.context_length)
    if reason := refusal(config, context_length):
        raise SettingError(f"{folder} cannot be served by the embedded engine: {reason}")
    path = folder / "tokenizer.json"
    identity = fingerprint(folder)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise SettingError(f"{path} cannot be read: {error}") from error
    return Facts(
        name=settings.kind,
        model=folder.resolve().name,
        context_length=context_length,
        vocabulary=config["vocab_size"],
        end_ids=end_ids(folder, tokenizer.token_to_id),
        dtype=dtype,
        fingerprint=identity,
    )
