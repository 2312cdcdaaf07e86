r"""Halves of surrogate pairs in JSON text: `"\ud83d"` alone is valid JSON, but not a character.

Clients write it when they cut a text inside an emoji, and models can write it too. No tokenizer, no hash and
no UTF-8 takes it, so it is read as U+FFFD.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)
"""An escape in JSON text: a whole pair, half of one, or any other."""

_HALF = len(r"\ud800")


def without_halves(json_text: str) -> str:
    r"""The JSON text with `\ufffd` for each escaped half of a surrogate pair."""
    return _ESCAPE.sub(_replaced, json_text)


def _replaced(escape: re.Match[str]) -> str:
    return r"\ufffd" if len(escape[0]) == _HALF else escape[0]
