"""Whether two model folders read the same ids."""

from __future__ import annotations

from pathlib import Path

from afterwit.core.errors import SettingError
from afterwit.wire.model_text.render import tokenizer_hash


def require_same_tokenizer(base: Path, other: Path, setting: str) -> None:
    """SettingError, with both hashes, unless both folders have the same tokenizer."""
    one, two = tokenizer_hash(base), tokenizer_hash(other)
    if one != two:
        raise SettingError(
            f"{setting} is {other}, whose tokenizer is {two[:12]}, but the model's is {one[:12]}: "
            "both must read the same ids, so choose a checkpoint of the same family"
        )
