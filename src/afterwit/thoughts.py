"""A model's answer without its thoughts, in any of the marks that models write."""

from __future__ import annotations

import re

from afterwit.scan import without_named_blocks

_NAMES = r"(?:seed:)?(?:think|thinking|thoughts?|reasoning|reflection|scratchpad)"

_TAG = re.compile(rf"[<\[](/?)({_NAMES})[>\]]", re.IGNORECASE)
"""`<think>`, `[THINK]`, `<seed:think>` and their kin."""

_CHANNEL = re.compile(r"<\|channel\|?>\s*(\w+)(?:\s*<\|message\|>)?|<channel\|>")
"""The beginning of a channel of harmony or Gemma, or the end of Gemma's thought."""

_BARE = re.compile(r"\Aanalysis(?![\s:.,;])(?:.*assistantfinal|.*)", re.DOTALL)
"""Harmony whose marks a server left out: `analysisThe person thanks.assistantfinal\boxed{1}`."""


def outside_thoughts(words: str) -> str:
    """The text outside the thoughts. One of a thought's two marks may be missing: without the first, the
    thought is all text before the second; without the second, all text after the first."""
    said = _BARE.sub("", words)
    channels = list(_CHANNEL.finditer(said))
    if channels:
        last = channels[-1]
        said = said[last.end() :] if last[1] in (None, "final") else ""
    said = without_named_blocks(said, _TAG, "")
    ends = [tag.end() for tag in _TAG.finditer(said) if tag[1]]
    said = said[ends[-1] :] if ends else said
    begun = _TAG.search(said)
    return said if begun is None else said[: begun.start()]
