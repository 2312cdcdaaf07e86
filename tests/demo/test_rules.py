"""The owner's rules see what was done, not what was meant."""

import json
import re
from random import Random

import pytest

from afterwit.demo.tools import tasks
from afterwit.demo.tools import tasks as rules
from afterwit.demo.tools.tasks import ToolStep
from afterwit.demo.tools.world import ToolsWorld
from afterwit.turn import ToolCall
from experiments.cases import tools as expert


def _step(name: str, *, replaces: bool = False, **arguments: object) -> ToolStep:
    return ToolStep(name=name, arguments=arguments, replaces=replaces)


@pytest.mark.parametrize("kind", sorted(tasks.KINDS))
def test_the_owners_way_keeps_every_rule_and_passes_the_real_check(kind: str) -> None:
    task = tasks.of_kind(kind, "fresh", Random(0))
    with ToolsWorld().start(task) as state:
        for step in expert.plan(task, set(task.rules)):
            state.act(_call(step))
        assert (state.broken(), state.kept(), state.check()) == ((), True, None)


@pytest.mark.parametrize("kind", sorted(tasks.KINDS))
def test_the_old_way_passes_the_check_and_breaks_the_rules(kind: str) -> None:
    task = tasks.of_kind(kind, "train", Random(1))
    with ToolsWorld().start(task) as state:
        for step in expert.plan(task, set()):
            state.act(_call(step))
        expected = set(task.rules) - (set() if kind == "create" else {"relative"})
        assert set(state.broken()) == expected
        assert not state.kept()
        assert state.check() is None


def test_doing_nothing_keeps_no_rule_and_fails_the_check_in_words() -> None:
    task = tasks.of_kind("edit", "train", Random(2))
    with ToolsWorld().start(task) as state:
        assert not state.kept()
        assert re.fullmatch(r"grep -xF .* gives status \d", state.check() or "")


def test_a_read_of_another_file_does_not_count() -> None:
    edit = _step("edit", path="a.txt", old="x", new="y")
    assert rules.broken(edit, [_step("read", path="b.txt")]) == ("read_first",)
    assert rules.broken(edit, [_step("read", path="/work/a.txt")]) == ()


def test_a_dry_run_does_not_delete_and_a_false_one_does() -> None:
    assert rules.broken(_step("delete", path="a", dry_run=True), []) == ()
    assert rules.broken(_step("delete", path="a", dry_run=False), []) == ("dry_run",)


def test_every_broken_rule_of_one_call_is_named() -> None:
    write = _step("write", path="/work/a.txt", text="x", replaces=True)
    assert rules.broken(write, []) == ("backup", "relative")


def test_a_malformed_call_breaks_no_rule_and_gets_an_error_in_words() -> None:
    task = tasks.of_kind("edit", "train", Random(3))
    with ToolsWorld().start(task) as state:
        for arguments in ("{", "[]", "{}", '{"path": 3}'):
            assert state.act(ToolCall(id="1", name="read", arguments=arguments)).startswith(
                ("failed: ", "there is no ")
            )
        assert state.act(ToolCall(id="1", name="fly", arguments="{}")) == "failed: no tool fly"


def _call(step: ToolStep) -> ToolCall:
    return ToolCall(id="1", name=step.name, arguments=json.dumps(dict(step.arguments)))
