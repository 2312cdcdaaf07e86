"""What a backup holds: a tar file with a header, the store, the versions, and the home's small files.

The header comes first. It has a hash of each file that no version's manifest has one of.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from afterwit.apps.home import CONFIG, MODEL, STORE, VERSIONS
from afterwit.checkpoints.foreign import parsed
from afterwit.checkpoints.manifest import NAME as MANIFEST
from afterwit.checkpoints.manifest import names_file
from afterwit.core.errors import SettingError

HEADER = "afterwit-backup.json"
FORMAT = 1
SMALL_FILES = (MODEL, CONFIG)
VERSION_FILE = re.compile(rf"{VERSIONS}/[0-9]{{6}}/(.*)", re.DOTALL)
"""The name of a version's file in an archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the first entry of an archive says. `hashes`: by the name of the file."""

    format: int = FORMAT
    afterwit: str
    created: float
    hashes: dict[str, str]

    def dump(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()


def read_header(data: bytes) -> Header:
    """The inverse of `Header.dump`. SettingError if this Afterwit does not know the format."""
    try:
        header = parsed(Header, data)
    except ValueError as error:
        raise SettingError(f"the backup's {HEADER} cannot be read") from error
    if header.format != FORMAT:
        raise SettingError(
            f"the backup has format {header.format}; this Afterwit knows {FORMAT}: install Afterwit "
            f"{header.afterwit}, which wrote it"
        )
    if foreign := header.hashes.keys() - {STORE, *SMALL_FILES}:
        raise SettingError(f"the backup's {HEADER} names {min(foreign)!r}, which is no file of a home")
    return header


def belongs(name: str) -> bool:
    """Whether an archive may hold an entry of this name: nothing lands beside the home."""
    if (of_version := VERSION_FILE.fullmatch(name)) is None:
        return name in (STORE, *SMALL_FILES)
    return of_version[1] == MANIFEST or names_file(of_version[1])


def links(name: str, other: str) -> bool:
    """Whether an entry may be a link to another one: a version's file to that of an earlier version."""
    return all(VERSION_FILE.fullmatch(each) and belongs(each) for each in (name, other))
