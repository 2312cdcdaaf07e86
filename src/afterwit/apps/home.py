"""The home folder: the names of its files, and the model it belongs to."""

from __future__ import annotations

import json
from pathlib import Path

from afterwit.core.errors import SettingError

STORE = "store.db"
VERSIONS = "versions"
CONFIG = "config.toml"
MODEL = "model.json"
"""Names the model's folder, so that later commands need not be told."""


def make_home(home: Path) -> Path:
    """The home folder, made if missing, readable by its owner only."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"the home folder {home} cannot be made: {error.strerror}; choose another with --home"
        ) from error
    return home


def store_url(home: Path, url: str | None = None) -> str:
    """Where the home's store is: at `url` (the setting `store.url`), else in the home."""
    return url or f"sqlite:{home / STORE}"


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


def remembered_model(home: Path) -> str | None:
    """The folder of the model that this home belongs to; None in a new home."""
    path = home / MODEL
    if not path.exists():
        return None
    try:
        return str(json.loads(path.read_text())["folder"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SettingError(f"{path} cannot be read: name the model again, `afterwit serve MODEL`") from error
