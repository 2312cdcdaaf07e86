"""Finds the model's folder: a path, a hub id's download, or the home's own. Refuses what cannot train."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from afterwit.engines.model_files import weight_files
from afterwit.errors import SettingError
from afterwit.home.home import remembered_model

WANTED = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
"""The files of a hub repository that are downloaded."""

TAKES = "name a Hugging Face model's folder or hub id, such as Qwen/Qwen3-0.6B"


def model_folder(name: str | None, home: Path) -> Path:
    """The folder of `name`, or of the model this home was made with. SettingError if there is none."""
    name = name or remembered_model(home)
    if name is None:
        raise SettingError(
            "no model: name a Hugging Face folder or hub id, such as `afterwit serve Qwen/Qwen3-0.6B`, "
            "or run `afterwit demo`, which brings a tiny one"
        )
    refuse_other_kinds(name)
    folder = Path(name).expanduser()
    if folder.exists():
        return _checked(folder)
    if looks_like_a_path(name):
        raise SettingError(f"there is no model at {folder}")
    return _checked(downloaded(name))


def refuse_other_kinds(name: str) -> None:
    """SettingError for a server's URL, an Ollama name or a GGUF file: nothing here can train those."""
    if "://" in name:
        raise SettingError(
            f"{name} is the address of a server, not a model: name the model, and give the address of a vLLM "
            f"or SGLang server as --engine vllm --engine-url {name}; {TAKES}"
        )
    folder = Path(name).expanduser()
    if name.lower().endswith(".gguf") or (
        any(folder.glob("*.gguf")) and not any(folder.glob("*.safetensors"))
    ):
        raise SettingError(f"{name} holds quantised GGUF weights, which cannot be trained: {TAKES}")
    if ":" in name and not folder.exists():
        raise SettingError(f"{name} looks like an Ollama name; Ollama's weights cannot be trained: {TAKES}")


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise SettingError(f"{folder} has no config.json, so it is not a Hugging Face model folder")
    weight_files(folder)
    return folder


def looks_like_a_path(name: str) -> bool:
    """Whether a name can be no hub id."""
    return name.startswith((".", "/", "~")) or name.count("/") != 1


def downloaded(name: str, wanted: Sequence[str] = WANTED) -> Path:
    """The folder of a hub repository's wanted files. SettingError if the hub does not give them."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(wanted)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SettingError(
            f"there is no folder {name} here, and the hub does not give it: {first}"
        ) from error
