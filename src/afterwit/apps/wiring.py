"""The only place that constructs: folders, store, versions, judge, trainer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.apps.config import Settings, home_of
from afterwit.core.errors import SettingError
from afterwit.engines.fingerprint import fingerprint, weight_files
from afterwit.store import Store

if TYPE_CHECKING:
    from afterwit.checkpoints.versions import Versions
    from afterwit.learner.trainer import Trainer

STORE = "store.db"
VERSIONS = "versions"
MODEL = "model.json"
"""Which model folder this home belongs to, so that later commands need not be told."""


def make_home(home: Path) -> Path:
    """The home folder, readable by its owner only."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"the home folder {home} cannot be made: {error.strerror}; choose another with --home"
        ) from error
    return home


def model_folder(settings: Settings, home: Path) -> Path:
    """The model's folder: the configured one, a hub id's download, else the one this home was made with."""
    name = settings.model
    if name is None:
        remembered = home / MODEL
        if not remembered.exists():
            raise SettingError(
                "no model: name a Hugging Face folder or hub id, such as `afterwit serve Qwen/Qwen3-0.6B`, "
                "or run `afterwit demo`, which brings a tiny one"
            )
        name = _remembered(remembered)
    folder = Path(name).expanduser()
    if folder.exists():
        return _checked(folder)
    if _looks_like_a_path(name):
        raise SettingError(f"there is no model at {folder}")
    return _checked(_downloaded(name))


def _remembered(path: Path) -> str:
    try:
        return str(json.loads(path.read_text())["folder"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SettingError(f"{path} cannot be read: name the model again, `afterwit serve MODEL`") from error


def remember_model(home: Path, folder: Path) -> None:
    """Write down which model this home belongs to."""
    text = json.dumps({"folder": str(folder.resolve())}) + "\n"
    path = home / MODEL
    if path.exists() and path.read_text(errors="replace") == text:
        return
    try:
        path.write_text(text)
        path.chmod(0o600)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror}; choose another --home") from error


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise SettingError(f"{folder} has no config.json: it is no Hugging Face model folder")
    weight_files(folder)
    return folder


def _looks_like_a_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") != 1


def _downloaded(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise SettingError(f"to download {name}, install the extra: pip install 'afterwit[local]'") from error
    wanted = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SettingError(f"{name} is no folder here, and the hub does not give it: {first}") from error


@contextmanager
def open_store(home: Path | None) -> Iterator[Store]:
    """A home's store for a command: it must be there. Any model's."""
    path = home_of(home) / STORE
    if not path.exists():
        raise SettingError(
            f"there is no store at {path}: start `afterwit serve` first, or name another --home"
        )
    store = Store.open(path, fingerprint=None)
    try:
        yield store
    finally:
        store.close()


def bound_store(settings: Settings, home: Path, folder: Path) -> Store:
    """The home's store, made if it is not there, bound to the model; StoreMismatch if it is another's."""
    make_home(home)
    return Store.open(home / STORE, fingerprint=fingerprint(folder), synchronous=settings.store.synchronous)


def versions_of(home: Path, folder: Path) -> Versions:
    """The home's folder of versions over the model."""
    from afterwit.checkpoints.versions import Versions

    return Versions(root=home / VERSIONS, base=folder)


def trainer_of(settings: Settings, home: Path, folder: Path) -> Trainer:
    """The learner's core, nothing loaded yet."""
    from afterwit.learner.trainer import Trainer
    from afterwit.wire.model_text.render import Renderer

    return Trainer(
        versions_of(home, folder),
        Renderer.load(folder),
        settings=settings.learner,
        objective=settings.objective,
        placement=settings.judge.placement,
    )


def worker_name(stage: str) -> str:
    """Who holds a lease: one name a process."""
    return f"{stage}-{os.uname().nodename}-{os.getpid()}"
