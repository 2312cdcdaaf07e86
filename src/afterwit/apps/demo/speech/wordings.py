"""Lists of wordings and words, kept as files beside the code that says them."""

import json
from collections.abc import Mapping
from pathlib import Path

Wordings = Mapping[str, Mapping[str, tuple[str, ...]]]
"""By what they are for, by name: the wordings in the order in which `part` cuts them."""


def wordings_beside(module: str) -> Wordings:
    """What `wordings.json` in the module's folder says."""
    groups = json.loads(Path(module).with_name("wordings.json").read_text(encoding="utf-8"))
    return {
        group: {name: tuple(wordings) for name, wordings in lists.items()} for group, lists in groups.items()
    }


def words_in(file: Path) -> list[str]:
    """The words of a text file, in order."""
    return file.read_text(encoding="utf-8").split()
