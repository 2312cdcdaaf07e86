"""What a backup holds: a tar file with a header, the store, the versions, and the home's small files.

The header comes first. It has a hash of each file that no version's manifest has one of.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from afterwit.apps.home import CONFIG, MODEL, STORE, VERSIONS
from afterwit.checkpoints.files import INDEX
from afterwit.core.errors import SettingError

HEADER = "afterwit-backup.json"
FORMAT = 1
SMALL_FILES = (MODEL, CONFIG)
VERSION_FILE = re.compile(rf"{VERSIONS}/\d{{6}}/(\w[\w.-]*|{re.escape(INDEX)})")
"""The names that a file of a version may have in an archive."""


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
        header = Header(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise SettingError(f"the backup's {HEADER} cannot be read") from error
    if header.format != FORMAT:
        raise SettingError(
            f"the backup has format {header.format}; this Afterwit knows {FORMAT}: install Afterwit "
            f"{header.afterwit}, which wrote it"
        )
    return header


def belongs(name: str) -> bool:
    """Whether an archive may hold an entry of this name: nothing lands beside the home."""
    return name in (STORE, *SMALL_FILES) or VERSION_FILE.fullmatch(name) is not None
