"""The chat world: everyday questions, and a person who likes answers of a certain kind."""

from __future__ import annotations
