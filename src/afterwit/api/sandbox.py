"""Isolated commands, for packages that run what a model writes."""

from afterwit.errors import BoxEnded
from afterwit.sandbox.box import Box, Ran, open_box
from afterwit.sandbox.isolation import BoxLimits, Isolation, find_isolation, seen_in

__all__ = [
    "Box",
    "BoxEnded",
    "BoxLimits",
    "Isolation",
    "Ran",
    "find_isolation",
    "open_box",
    "seen_in",
]
