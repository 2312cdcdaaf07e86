"""The outcome of a self-test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from afterwit.errors import AfterwitError, SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one self-test: its name, what was seen, and a remedy if it failed."""

    name: str
    ok: bool
    seen: str
    remedy: str = ""


def tested(name: str, test: Callable[..., str], *args: Any, remedy: str) -> Finding:
    """The outcome of a test that returns what it saw, or raises one of our errors or an AssertionError."""
    try:
        return Finding(name=name, ok=True, seen=test(*args))
    except (AfterwitError, AssertionError, OSError) as error:
        return Finding(name=name, ok=False, seen=str(error), remedy=remedy)


def require(findings: Iterable[Finding]) -> None:
    """SettingError with the first fault and its remedy, if there is one."""
    for finding in findings:
        if not finding.ok:
            raise SettingError(f"self-test {finding.name}: {finding.seen}; {finding.remedy}")


def expect(holds: bool, sentence: str) -> None:
    """Fail the test with `sentence` unless it holds."""
    if not holds:
        raise AssertionError(sentence)
