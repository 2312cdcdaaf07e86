"""The filter of system calls, run step by step as the kernel runs it, for each machine."""

from __future__ import annotations

import errno

import pytest

from afterwit_atropos.sandbox.inside.filter import MACHINES, _program

KILL, ALLOW, REFUSE = 0x80000000, 0x7FFF0000, 0x00050000 | errno.EPERM
UNKNOWN = 0x00050000 | errno.ENOSYS
HARMLESS = {"x86_64": (0, 1, 59, 231), "aarch64": (63, 64, 221, 94)}
"""read, write, execve, exit_group."""
CLONE3 = 435


def verdict(machine: str, number: int, *given: int, audit: int | None = None) -> int:
    """The filter's verdict on a call: `seccomp_data` has its number at byte 0, the machine at byte 4, and
    its arguments from byte 16 on."""
    calls = MACHINES[machine]
    data, held, at = {0: number, 4: calls.audit if audit is None else audit}, 0, 0
    data |= {16 + 8 * place: value & 0xFFFFFFFF for place, value in enumerate(given)}
    steps = _program(calls)
    while True:
        code, yes, no, value = steps[at]
        at += 1
        match code:
            case 0x20:
                held = data[value]
            case 0x54:
                held &= value
            case 0x15:
                at += yes if held == value else no
            case 0x35:
                at += yes if held >= value else no
            case 0x45:
                at += yes if held & value else no
            case 0x06:
                return value


@pytest.mark.parametrize("machine", MACHINES)
def test_denied_calls_are_refused_and_others_are_not(machine: str) -> None:
    assert {verdict(machine, number) for number in MACHINES[machine].denied} == {REFUSE}
    assert {verdict(machine, number) for number in HARMLESS[machine]} == {ALLOW}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_in_another_numbering_ends_the_process(machine: str) -> None:
    calls = MACHINES[machine]
    others = {each.audit for each in MACHINES.values()} - {calls.audit} | {0x40000003}
    assert {verdict(machine, calls.denied[0], audit=other) for other in others} == {KILL}
    assert verdict(machine, 0x40000000 + calls.denied[0]) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_processes_and_threads_start_but_no_namespaces(machine: str) -> None:
    thread, child, new_user = 0x3D0F00, 0x1200011, 0x10000000
    clone = MACHINES[machine].clone
    assert [verdict(machine, clone, flags) for flags in (thread, child)] == [ALLOW, ALLOW]
    assert {verdict(machine, clone, child | new_user << shift) for shift in range(3)} == {REFUSE}
    assert verdict(machine, clone, child | 0x20000) == REFUSE
    assert verdict(machine, CLONE3) == UNKNOWN


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_are_of_families_that_end_at_the_boxs_network(machine: str) -> None:
    for number in MACHINES[machine].sockets:
        allowed = [family for family in range(50) if verdict(machine, number, family) == ALLOW]
        assert allowed == [1, 2, 10, 16]


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_is_shared_through_files_alone(machine: str) -> None:
    shared, private, anonymous = 0x01, 0x02, 0x20

    def mapped(flags: int) -> int:
        return verdict(machine, MACHINES[machine].mmap, 0, 4096, 3, flags)

    assert mapped(shared) == mapped(private | anonymous) == mapped(private) == ALLOW
    assert mapped(shared | anonymous) == mapped(shared | private | anonymous) == REFUSE


@pytest.mark.parametrize("machine", MACHINES)
def test_nobody_sets_how_another_process_runs(machine: str) -> None:
    calls = MACHINES[machine]
    for number in calls.of_another:
        assert [verdict(machine, number, process) for process in (0, 1, 7)] == [ALLOW, REFUSE, REFUSE]
    for number, process in calls.of_others:
        assert verdict(machine, number, process, 0) == ALLOW
        assert verdict(machine, number, process, 1) == REFUSE
        assert verdict(machine, number, process + 2, 0) == REFUSE, "all processes of a user"
