"""The home folder: the names of its files, and the model it belongs to."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.errors import SettingError, StoreMismatch, VersionDamaged

if TYPE_CHECKING:
    from afterwit.checkpoints.versions import Versions
    from afterwit.store import Store

STORE, VERSIONS, CONFIG = "store.db", "versions", "config.toml"
MODEL = "model.json"
"""Remembers the model's folder for later commands."""
TOKEN, COMPILED = "page-token", "compiled"
STAGES = ("gateway", "judge", "learn")
"""The stages of `afterwit serve`. The process that runs one over a home holds its lock."""
ELSEWHERE = "; choose another --home"
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def make_home(home: Path, environment: MutableMapping[str, str] = os.environ) -> Path:
    """The home folder, made if missing, readable by its owner only. The code that torch compiles goes there
    too: its own folder has a name that another user could make first."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"the home folder {home} cannot be made: {error.strerror}; choose another with --home"
        ) from error
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(home.resolve() / COMPILED))
    return home


def expanded(path: str | Path) -> Path:
    """The path with the user's folder in place of `~`. SettingError if there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise SettingError(f"{path}: no user's folder is {Path(path).parts[0]}") from error


def stage_lock(home: Path, stage: str) -> Path:
    """The file of a stage's lock."""
    return home / f".{stage}.lock"


def learner_lock(home: Path) -> Path:
    """The file of the lock that the only learner holds (`Versions.learning`)."""
    return home / VERSIONS / ".learner.lock"


@contextmanager
def writing(path: Path, remedy: str = "") -> Iterator[None]:
    """SettingError, with the remedy, if the body cannot write `path`."""
    try:
        yield
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror}{remedy}") from error


def write_config(home: Path, settings: Mapping[str, object]) -> Path:
    """Write config.toml into the home, which is made if missing; the file. SettingError if there is one."""
    path = make_home(home) / CONFIG
    with writing(path, ELSEWHERE), os.fdopen(os.open(path, NEW, 0o600), "w", encoding="utf-8") as file:
        file.write(config_text(settings))
    return path


def config_text(settings: Mapping[str, object]) -> str:
    """The settings, by their dotted names, as lines of TOML; those that are None are left out."""

    def toml(value: object) -> str:
        if isinstance(value, float):  # JSON has no infinity
            return repr(value)
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{toml(key)} = {toml(each)}' for key, each in value.items())}}}"
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(toml, value))}]"
        return json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")

    return "".join(f"{name} = {toml(value)}\n" for name, value in settings.items() if value is not None)


def page_token(home: Path) -> str:
    """The home's token, made if missing: it opens the page while there are no keys."""
    path = make_home(home) / TOKEN
    with writing(path, ELSEWHERE):
        with suppress(FileExistsError), os.fdopen(os.open(path, NEW, 0o600), "w") as file:
            file.write(secrets.token_hex(20))
        token = path.read_text().strip()
    if not token:  # written by a process that was killed
        raise SettingError(f"{path} is empty: delete it")
    return token


def store_url(home: Path, url: str | None = None) -> str:
    """The URL of the home's store: the setting `store.url`, else a file in the home."""
    return url or f"sqlite:{home / STORE}"


def remember_model(home: Path, folder: Path) -> None:
    """Write down which model this home belongs to."""
    text = json.dumps({"folder": str(folder.resolve())}) + "\n"
    path = home / MODEL
    if path.exists() and path.read_text(errors="replace") == text:
        return
    with writing(path, ELSEWHERE):
        path.write_text(text)
        path.chmod(0o600)


def remembered_model(home: Path) -> str | None:
    """The folder of the model that this home belongs to; None in a new home."""
    path = home / MODEL
    if not path.exists():
        return None
    try:
        return str(json.loads(path.read_text())["folder"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SettingError(f"{path} cannot be read: name the model again, `afterwit serve MODEL`") from error


def refuse_another_home(url: str | None, store: Store, versions: Versions) -> None:
    """StoreMismatch if the store knows versions, but the folder has none of these.

    A learner of this home would consider them lost and train their turns again; a gateway would never serve
    them. `url` is the setting `store.url`: a store inside the home (None) is its own.
    """
    known = [record for record in store.versions() if record.number > 0]
    if url is None or not known:
        return
    for record in reversed(known):
        try:
            version = versions.of(None).get(record.number)
        except VersionDamaged:  # fails later with its own message
            return
        if version is not None and version.created == record.created:
            return
    here = sum(number > 0 for number in versions.of(None).numbers())
    newest = max(known, key=lambda record: record.number)
    made = datetime.fromtimestamp(newest.created, UTC)
    raise StoreMismatch(
        f"store.url is the store of another home: it knows {len(known)} versions, the newest {newest.number} "
        f"of {made:%Y-%m-%d %H:%M} UTC, and none of them is among the {here} in {versions.root}. Share that "
        "home's versions (`versions.url`, or one disk), or name another database in store.url"
    )
