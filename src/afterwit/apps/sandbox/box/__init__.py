"""The sandbox that is one: no network, a root of its own, limits; or a refusal to start."""

from afterwit.apps.sandbox.box.box import Box, Ran, open_box
from afterwit.apps.sandbox.box.isolation import Walls, seen_in, walls
from afterwit.apps.sandbox.box.limits import BoxLimits

__all__ = ["Box", "BoxLimits", "Ran", "Walls", "open_box", "seen_in", "walls"]
