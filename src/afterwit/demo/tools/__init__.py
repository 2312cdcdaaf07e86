"""The tools world: files in a sandbox, an owner's house rules, people who speak in text."""

from __future__ import annotations
