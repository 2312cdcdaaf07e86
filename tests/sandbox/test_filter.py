"""The filter of system calls, run step by step as the kernel runs it, for each machine."""

from __future__ import annotations

import errno

import pytest

from afterwit.apps.sandbox.box.inside.filter import DENIED, _program

KILL, ALLOW, REFUSE = 0x80000000, 0x7FFF0000, 0x00050000 | errno.EPERM
HARMLESS = {"x86_64": (0, 1, 59, 231), "aarch64": (63, 64, 221, 94)}
"""read, write, execve, exit_group."""


def verdict(machine: str, audit: int, number: int) -> int:
    """What the kernel does with a call: `seccomp_data` has its number at byte 0 and the machine at byte 4."""
    data, held, at = {0: number, 4: audit}, 0, 0
    steps = _program(*DENIED[machine])
    while True:
        code, yes, no, value = steps[at]
        at += 1
        match code:
            case 0x20:
                held = data[value]
            case 0x15:
                at += yes if held == value else no
            case 0x35:
                at += yes if held >= value else no
            case 0x06:
                return value


@pytest.mark.parametrize("machine", DENIED)
def test_denied_calls_are_refused_and_others_are_not(machine: str) -> None:
    audit, numbers = DENIED[machine]
    assert {verdict(machine, audit, number) for number in numbers} == {REFUSE}
    assert {verdict(machine, audit, number) for number in HARMLESS[machine]} == {ALLOW}


@pytest.mark.parametrize("machine", DENIED)
def test_a_call_in_another_numbering_ends_the_process(machine: str) -> None:
    audit, numbers = DENIED[machine]
    others = {each for each, _ in DENIED.values()} - {audit} | {0x40000003}
    assert {verdict(machine, other, numbers[0]) for other in others} == {KILL}
    assert verdict(machine, audit, 0x40000000 + numbers[0]) == KILL
