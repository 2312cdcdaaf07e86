"""How a model marks its reasoning."""

from __future__ import annotations

THINK, END_THINK = "<think>", "</think>"


def opens_reasoning(prompt: str) -> bool:
    """Whether a rendered prompt leaves the reasoning open, so that the response begins inside it."""
    return prompt.rstrip().endswith(THINK)
