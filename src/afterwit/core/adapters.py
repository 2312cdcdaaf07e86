"""Whose adapter serves a request and learns from it. Pure."""

from __future__ import annotations

SHARED = "shared"
"""The adapter that serves everybody who has none of their own. Whole weights are its versions too."""
