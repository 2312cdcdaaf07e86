"""A request bound to its session and its parent turn, inside one call of the store."""

from __future__ import annotations
