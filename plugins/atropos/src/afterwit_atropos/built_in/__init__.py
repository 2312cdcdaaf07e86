"""The eight built-in tasks, one file each: the prompt with its visible examples, and the hidden tests."""

from __future__ import annotations

import tomllib
from pathlib import Path

from afterwit_atropos.tasks import Task

NAMES = (
    "fizzbuzz",
    "palindrome",
    "two_sum",
    "flatten",
    "longest_common_prefix",
    "group_anagrams",
    "valid_parentheses",
    "merge_intervals",
)


def built_in() -> tuple[Task, ...]:
    """Every built-in task, easiest first."""
    return tuple(_task(name) for name in NAMES)


def _task(name: str) -> Task:
    held = tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))
    return Task(
        name=name,
        prompt=held["prompt"].strip(),
        tests=tuple(held["tests"]),
        setup=held.get("setup", ""),
    )
