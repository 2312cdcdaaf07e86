"""Text that clients put under a person's name or into tool results: no reaction of anybody's."""

from __future__ import annotations

import re

_BLOCKS = re.compile(
    r"<system-reminder>.*?</system-reminder>"
    r"|<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>.*?<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
    re.DOTALL,
)
_OPENCLAW_STAMP = re.compile(r"^\[[A-Z][a-z]{2} \d{4}-\d{2}-\d{2} \d{2}:\d{2}[^\]\n]*\] ")
_OPENCLAW_RUNTIME = re.compile(r"\n\nRuntime: agent=\S+ \| [^\n]*\s*$")


def strip_blocks(text: str) -> str:
    """The text without the blocks that come and go from one request to the next."""
    return _BLOCKS.sub("", text)


def strip_injected(text: str) -> str:
    """The text, stripped, without blocks, time stamps and run-time lines that clients are known to add."""
    without = strip_blocks(text).strip()
    return _OPENCLAW_RUNTIME.sub("", _OPENCLAW_STAMP.sub("", without))
