"""Finds the model's folder: a path, a hub id's download, a GGUF file's weights, or the home's own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from afterwit.engines.model_files import LINK, file_fingerprint, weight_files
from afterwit.errors import SettingError
from afterwit.gguf.file import SUFFIX, is_gguf, library, read_head
from afterwit.home.drafts import draft_beside
from afterwit.home.home import expanded, make_home, remembered_model
from afterwit.printing.terminal import working

WANTED = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
"""The files of a hub repository that are downloaded."""

TAKES = "name a Hugging Face model's folder or hub id, such as Qwen/Qwen3-0.6B, or a GGUF file"

DEQUANTISED = "gguf"
"""The home's folder of models that came as GGUF files."""


def model_folder(name: str | None, home: Path) -> Path:
    """The folder of `name`, or of the model this home was made with. SettingError if there is none."""
    name, place = named_model(name, home)
    if is_gguf(place):
        return _dequantised(place, home)
    return _checked(place if place.exists() else downloaded(name))


def named_model(name: str | None, home: Path) -> tuple[str, Path]:
    """A model's name, or that of the home's own, and its place on the disk, where there is nothing for a
    hub id. SettingError if it names no model."""
    name = name or remembered_model(home)
    if name is None:
        raise SettingError(
            "no model: name a Hugging Face folder or hub id, such as `afterwit serve Qwen/Qwen3-0.6B`, "
            "or run `afterwit demo`, which brings a tiny one"
        )
    refuse_other_kinds(name)
    place = expanded(name)
    if not place.exists() and _looks_like_a_path(name):
        raise SettingError(f"there is no model at {place}")
    return name, place


def refuse_other_kinds(name: str) -> None:
    """SettingError for a server's URL, an Ollama name or a folder of GGUF files."""
    if "://" in name:
        raise SettingError(
            f"{name} is the address of a server, not a model: name the model, and give the address of a vLLM "
            f"or SGLang server as --engine vllm --engine-url {name}; {TAKES}"
        )
    folder = expanded(name)
    if (files := sorted(folder.glob("*.gguf"))) and not any(folder.glob("*.safetensors")):
        raise SettingError(
            f"{name} holds GGUF files and no other weights: name one of them, such as {files[0]}"
        )
    if ":" in name and not folder.exists():
        raise SettingError(
            f"{name} looks like an Ollama name: name its file, which `ollama show --modelfile {name}` prints "
            f"after FROM; {TAKES}"
        )


def _dequantised(file: Path, home: Path) -> Path:
    """The home's folder with the file's model, written when it is first named: whole, or not at all."""
    place = make_home(home).resolve() / DEQUANTISED / f"{file.stem}-{file_fingerprint(file)[:16]}"
    if place.is_dir():
        _link(place / LINK, file)
        return place
    library()
    head = read_head(file)
    from afterwit.gguf.read import write_folder

    words = f"reading {file.name} once, into {place}"
    try:
        place.parent.mkdir(exist_ok=True)
        with draft_beside(place) as draft, working(words) as line:
            write_folder(head, draft, lambda done, of: line.step(words, done, of))
            _link(draft / LINK, file)
            draft.rename(place)
    except OSError as error:
        if place.is_dir():  # another process of this home was quicker
            return place
        raise SettingError(f"{place} cannot be written: {error.strerror}") from error
    return place


def _link(link: Path, file: Path) -> None:
    """From the folder to the file, which llama.cpp serves as it is."""
    with suppress(OSError):  # a folder that cannot be written serves in all other engines
        if not (link.is_symlink() and link.readlink() == file.resolve()):
            link.unlink(missing_ok=True)
            link.symlink_to(file.resolve())


def _checked(folder: Path) -> Path:
    if folder.is_file():
        raise SettingError(f"{folder} is a file, and not a GGUF one; {TAKES}")
    if not (folder / "config.json").is_file():
        raise SettingError(f"{folder} has no config.json, so it is not a Hugging Face model folder")
    weight_files(folder)
    return folder


def _looks_like_a_path(name: str) -> bool:
    """Whether a name can be no hub id."""
    return name.startswith((".", "/", "~")) or name.count("/") != 1 or name.lower().endswith(SUFFIX)


def downloaded(name: str, wanted: Sequence[str] = WANTED) -> Path:
    """The folder of a hub repository's wanted files. SettingError if the hub does not give them."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(wanted)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SettingError(
            f"there is no folder {name} here, and the hub did not return it: {first.removeprefix('Got: ')}"
        ) from error
