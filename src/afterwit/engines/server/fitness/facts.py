"""What the local folder says about a model on a server, and whether it is the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from afterwit.core.errors import SettingError
from afterwit.engines.fingerprint import fingerprint
from afterwit.engines.port import Facts
from afterwit.engines.server.fitness.tokenizer import tokenizer_of
from afterwit.engines.server.settings import ServerSettings
from afterwit.wire.model_text.folder import end_ids, read_json


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
