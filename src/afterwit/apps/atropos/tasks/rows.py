"""The rows of a data set: of a local file or folder, or of a data set of the Hugging Face hub by its name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from afterwit.core.errors import SettingError

Rows = Sequence[Mapping[str, Any]]
FILES = (".jsonl", ".json", ".parquet")
SAVED = ("dataset_info.json", "dataset_dict.json")
"""One of them is in a folder that the `datasets` library saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSettings:
    """Which data set, and which of its columns."""

    name: str
    """A file (.jsonl, .json, .parquet), a folder as the `datasets` library reads or saves it, or a name on
    the hub."""
    split: str = "train"
    """Of a data set of the hub, or of a folder."""
    config: str | None = None
    """The hub's word for one of several data sets under a name."""
    prompt_column: str = "prompt"
    tests_column: str = "tests"
    """A Python program or several in a list, see `exam/examiner.py`."""
    setup_column: str | None = None
    """Python that runs before each test of its row."""
    entry_point_column: str | None = None
    """The function that tests in HumanEval's form are called with."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns that must be there, by the setting that names them."""
        named = {
            "prompt_column": self.prompt_column,
            "tests_column": self.tests_column,
            "setup_column": self.setup_column,
            "entry_point_column": self.entry_point_column,
        }
        return {setting: column for setting, column in named.items() if column is not None}


def from_hub(settings: DatasetSettings) -> Iterable[Mapping[str, Any]]:
    """The rows of a folder, or of a data set of the hub. SettingError if the library is absent or refuses."""
    try:
        from datasets import load_dataset, load_from_disk
    except ImportError as error:
        raise SettingError(
            f'"{settings.name}" is no file, and any other data set needs: pip install "afterwit[atropos]"'
        ) from error
    folder = Path(settings.name).expanduser()
    try:
        if not any((folder / saved).is_file() for saved in SAVED):
            name = str(folder) if folder.is_dir() else settings.name
            return cast(Rows, load_dataset(name, settings.config, split=settings.split))
        held = load_from_disk(str(folder))
    except Exception as error:  # the library raises whatever the hub and the file formats do
        raise SettingError(f'the data set "{settings.name}" cannot be loaded: {error}') from error
    if not isinstance(held, dict):
        return cast(Rows, held)
    if settings.split not in held:
        raise SettingError(
            f'the data set "{settings.name}" has no split "{settings.split}"'
            f"{nearest(settings.split, held)}; it has {', '.join(held)}"
        )
    return cast(Rows, held[settings.split])


def cache_of_the_hub() -> Path:
    """Where the library keeps data sets of the hub. ImportError without it."""
    from datasets import config

    return Path(config.HF_DATASETS_CACHE)


def is_file(name: str) -> bool:
    """Whether a data set's name is that of a file, be it there or not."""
    path = Path(name).expanduser()
    if path.is_dir():
        return False
    return path.exists() or path.suffix in FILES or name.startswith((".", "/", "~"))


def local(path: Path) -> Rows:
    """The rows of a file. SettingError if it is not there or is no list of objects."""
    path = path.expanduser()
    if not path.is_file():
        beside = [each.name for each in path.parent.glob("*")] if path.parent.is_dir() else []
        raise SettingError(f"there is no file {path}{nearest(path.name, beside)}")
    try:
        match path.suffix:
            case ".jsonl":
                lines = path.read_text(encoding="utf-8").splitlines()
                rows = [json.loads(line) for line in lines if line.strip()]
            case ".json":
                rows = json.loads(path.read_text(encoding="utf-8"))
            case ".parquet":
                rows = _parquet(path)
            case _:
                raise SettingError(f"{path} is none of {', '.join(FILES)}")
    except ValueError as error:
        raise SettingError(f"{path} cannot be read: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SettingError(f"{path} is no list of objects with a prompt and tests each")
    return rows


def _parquet(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise SettingError(f'{path} needs: pip install "afterwit[atropos]"') from error
    return parquet.read_table(path).to_pylist()


def nearest(name: str, known: Iterable[str]) -> str:
    """The name that is like it, as the end of a sentence; empty if none is."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f'; the nearest is "{near[0]}"' if near else ""
