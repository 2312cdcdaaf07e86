"""Boxes for tests: with the isolation of this machine, or skipped with the reason that there is none."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import cache

import pytest

from afterwit.errors import IsolationMissing
from afterwit.sandbox.box import Box, Ran, Walls, walls


@cache
def refusal() -> str | None:
    """Why nothing can be isolated here; None if it can."""
    try:
        walls()
    except IsolationMissing as error:
        return str(error)
    return None


def isolated(test: Callable[..., object]) -> Callable[..., object]:
    """Skip a test where no isolation can be had."""
    return pytest.mark.skipif(refusal() is not None, reason=refusal() or "")(test)


def here() -> Walls:
    """The walls of this machine."""
    return walls()


async def python(box: Box, code: str) -> Ran:
    """Run Python code in a box."""
    return await box.run(["python", "-c", textwrap.dedent(code)])
