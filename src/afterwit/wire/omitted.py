"""The note in a message in place of something that a text model cannot read.

A request is not refused for it: agents keep a screenshot in their history and would send the same request
for ever.
"""

from __future__ import annotations

import re

_NAMES = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "input_audio": "audio",
    "audio": "audio",
    "audio_url": "audio",
    "video": "video",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
}
"""What each type of part is called."""
_REASON = " omitted: this model reads text]"
_PLACEHOLDER = re.compile(rf"\[({'|'.join(sorted({*_NAMES.values(), 'part'}))}){re.escape(_REASON)}")


def omitted(kind: str) -> str:
    """The note in place of a part of this type."""
    return f"[{_NAMES.get(kind, 'part')}{_REASON}"


def omitted_kind(text: str) -> str | None:
    """What was left out of a text first; None if nothing was."""
    found = _PLACEHOLDER.search(text) if _REASON in text else None
    return found[1] if found else None
