"""Boxes for tests: with the isolation of this machine, or skipped with the reason that there is none."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import cache

import pytest

from afterwit_atropos.sandbox.box import Box, Ran
from afterwit_atropos.sandbox.isolation import Isolation, IsolationMissing, find_isolation


@cache
def refusal() -> str | None:
    """Why nothing can be isolated here; None if it can."""
    try:
        find_isolation()
    except IsolationMissing as error:
        return str(error)
    return None


def isolated(test: Callable[..., object]) -> Callable[..., object]:
    """Skip a test where no isolation can be had."""
    return pytest.mark.skipif(refusal() is not None, reason=refusal() or "")(test)


def here() -> Isolation:
    """The walls of this machine."""
    return find_isolation()


async def python(box: Box, code: str) -> Ran:
    """Run Python code in a box."""
    return await box.run(["python", "-c", textwrap.dedent(code)])
