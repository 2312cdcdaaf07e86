"""An agent's rollout: recorded as sampled, its tools real, its reward by tests that it cannot reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Generate
from afterwit.errors import RequestError
from afterwit.lifecycle import Reason
from afterwit.turn import Finish, Sampling
from afterwit_atropos.coding.agent import UNREAD, AgentSettings, play
from afterwit_atropos.coding.tasks import Task, built_in
from afterwit_atropos.episode import Attempt, Policy
from afterwit_atropos.group import group_of
from afterwit_atropos.rollout import ScoredRollout, Unscored, pairs
from afterwit_atropos.sandbox.isolation import BoxLimits, find_isolation
from plugins.atropos.tests.sandbox.boxes import here, isolated
from plugins.atropos.tests.solutions import GOOD
from tests.fakes.engine import FakeEngine
from tests.fakes.models import tiny_qwen3

BY_NAME = {task.name: task for task in built_in()}
SETTINGS = AgentSettings(box=BoxLimits(seconds=60, cpu_seconds=30))
Say = Callable[[Sequence[str]], Policy]


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return Renderer.load(tiny_qwen3(tmp_path_factory.mktemp("model")))


@pytest.fixture
def says(renderer: Renderer) -> Callable[..., Policy]:
    """A policy whose turns are these texts, then "Done."."""

    def policy(*texts: str, context_length: int = 100_000) -> Policy:
        left = iter(texts)

        def script(request: Generate) -> Sequence[int]:
            return renderer.encode(next(left, "Done."))

        engine = FakeEngine(
            script,
            end_id=min(renderer.end_ids),
            vocabulary=renderer.vocabulary,
            context_length=context_length,
            together=16,
        )
        return Policy(engine, renderer, Sampling(max_tokens=50_000))

    return policy


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def terminal(command: str) -> str:
    return call("terminal", command=command)


def heard(played: Attempt) -> list[str]:
    """The tools' answers."""
    return [message.content or "" for message in played.rollout.messages if message.role == "tool"]


@isolated
async def test_a_good_rollout_is_worth_1_and_recorded_as_it_was_sampled(
    says: Callable[..., Policy], renderer: Renderer
) -> None:
    written = call("write_file", path="solution.py", content=GOOD["fizzbuzz"])
    tried = terminal("python -c 'from solution import fizzbuzz; print(fizzbuzz(3))'")
    played = await play(BY_NAME["fizzbuzz"], says(written, tried), here(), SETTINGS)
    assert heard(played) == ["wrote solution.py", "['1', '2', 'Fizz']"]
    assert (played.reward.total, played.reward.passed) == (1.0, True)

    turns = played.rollout.in_order
    assert [turn.finish for turn in turns] == [Finish.TOOL_CALLS, Finish.TOOL_CALLS, Finish.STOP]
    assert [turn.parent for turn in turns] == [None, turns[0].id, turns[1].id]
    assert len({turn.session for turn in turns}) == 1
    for turn, text in zip(turns, (written, tried, "Done."), strict=True):
        assert turn.prompt_ids == renderer.prompt_ids(turn.conversation)
        assert turn.sampled.ids == (*renderer.encode(text), min(renderer.end_ids))
    unscored = tuple(Unscored(turn=turn, reason=Reason.NO_SIGNAL) for turn in turns)
    scored = ScoredRollout(rollout=played.rollout, turns=unscored, teacher="live")
    notes = [sequence.notes for sequence in group_of([scored], [1.0]).sequences]
    assert sum(len(each.turns) for each in notes if each) == 3


@isolated
async def test_the_verdict_of_the_tests_is_the_last_turns_next_state(
    says: Callable[..., Policy],
) -> None:
    played = await play(BY_NAME["flatten"], says(), here(), SETTINGS)
    [(turn, next_state)] = pairs(played.rollout)
    assert next_state is not None
    assert next_state.feedback is not None
    assert next_state.feedback.reward == -1
    assert next_state.feedback.text == ("0 of 7 hidden tests pass. First failure: there is no solution.py")
    assert played.reward.total == pytest.approx(0.15)
    assert turn.message.content == "Done."


@isolated
async def test_mistakes_in_calls_are_answered_in_words(says: Callable[..., Policy]) -> None:
    calls = [
        call("fly", to="moon"),
        call("read_file", file="x"),
        call("read_file", path="absent.txt"),
        call("write_file", path="/etc/passwd", content="x"),
        call("write_file", path="a.txt", content="one one two"),
        call("patch", path="a.txt", old="one", new="x"),
        call("patch", path="a.txt", old="two", new="three"),
        terminal("cat a.txt; exit 3"),
        terminal("true"),
    ]
    played = await play(BY_NAME["fizzbuzz"], says("".join(calls)), here(), SETTINGS)
    assert heard(played) == [
        "error: there is no tool fly",
        'error: the arguments of read_file do not fit its schema: "path" is a required property',
        "error: no such file: absent.txt",
        "error: /etc/passwd is outside the workspace",
        "wrote a.txt",
        "error: the text to replace occurs 2 times in a.txt, not once",
        "patched a.txt",
        "one one three\n[exit status 3]",
        "[exit status 0]",
    ]


@isolated
async def test_a_call_that_cannot_be_read_is_a_turn_like_any_other(says: Callable[..., Policy]) -> None:
    played = await play(BY_NAME["fizzbuzz"], says('<tool_call>{"name": oops</tool_call>'), here(), SETTINGS)
    assert [message.content for message in played.rollout.messages][-2:] == [UNREAD, "Done."]
    assert played.reward.tool_usage == 0.0


@isolated
async def test_calls_that_are_none_of_a_tool_are_no_use_of_one(says: Callable[..., Policy]) -> None:
    calls = [call("terminal", cmd="true"), call("write_file", path="a.txt"), call("fly", to="moon")]
    played = await play(BY_NAME["fizzbuzz"], says("".join(calls)), here(), SETTINGS)
    assert all(said.startswith("error: ") for said in heard(played))
    assert played.reward.tool_usage == 0.0


async def test_arguments_with_half_a_character_reach_the_box_and_are_answered(
    says: Callable[..., Policy],
) -> None:
    half = call("terminal", command="echo \ud800") + call("read_file", path="\ud800")
    written = call("write_file", path="a.txt", content="\ud800") + call("read_file", path="a.txt")
    played = await play(BY_NAME["fizzbuzz"], says(half + written), find_isolation(unsafe=True), SETTINGS)
    assert [said[:6] for said in heard(played)] == ["bash: ", "error:", "wrote ", "?"]


async def test_an_agent_that_ends_its_own_box_fails_and_its_group_is_not_lost(
    says: Callable[..., Policy],
) -> None:
    written = call("write_file", path="solution.py", content=GOOD["fizzbuzz"])
    calls = terminal("kill -9 $PPID") + terminal("true")
    played = await play(BY_NAME["fizzbuzz"], says(written, calls), find_isolation(unsafe=True), SETTINGS)
    assert (len(played.rollout.turns), played.reward.correctness) == (2, 0.0)
    assert [said[:6] for said in heard(played)] == ["wrote ", "error:", "error:"]
    assert played.rollout.outcome is not None
    assert played.rollout.outcome.reward == -1


@isolated
async def test_an_agent_ends_with_its_last_turn(says: Callable[..., Policy]) -> None:
    settings = AgentSettings(max_turns=2, box=SETTINGS.box)
    played = await play(BY_NAME["fizzbuzz"], says(*[terminal("true")] * 5), here(), settings)
    assert (len(played.rollout.turns), len(heard(played))) == (2, 2)
    with pytest.raises(ValueError, match="max_turns must be at least 1, not 0"):
        AgentSettings(max_turns=0)


@isolated
async def test_a_conversation_that_outgrows_the_model_ends_and_is_examined(
    says: Callable[..., Policy],
) -> None:
    written = call("write_file", path="solution.py", content=GOOD["fizzbuzz"])
    large = terminal("head -c 12000 /dev/zero | tr '\\0' x")
    played = await play(BY_NAME["fizzbuzz"], says(written, large, context_length=6000), here(), SETTINGS)
    assert (len(played.rollout.turns), played.reward.correctness) == (2, 1.0)
    with pytest.raises(RequestError, match="maximum context length"):
        await play(BY_NAME["fizzbuzz"], says(context_length=10), here(), SETTINGS)


SECRET = "a phrase of the hidden test"
HIDDEN = Task(name="hidden", prompt="Write a function f().", tests=(f"assert f() == {SECRET!r}",))
CHEATS = {
    "writes a test of its own that passes": (
        call("write_file", path="test_solution.py", content="def test_f(): assert True"),
        terminal("echo '1 passed'; echo 'ALL TESTS PASS'; touch PASSED"),
        call("write_file", path="solution.py", content="def f(): return None"),
    ),
    "looks for the hidden tests and in environments": (
        terminal(
            f"(env; cat /proc/*/environ /proc/*/cmdline; grep -rs 'phrase of the' . /tmp /box /dev/shm;"
            " find / -name 'task*' -o -name '*.toml' | grep -i -e atropos -e built_in) 2>/dev/null"
            f" | grep -v 'grep' > found; grep -c '{SECRET[:8]}' found"
        ),
        terminal("echo \"def f(): return open('found').read()\" > solution.py"),
    ),
    "leaves daemons that would wait for the exam": (
        terminal(
            "echo 'def f(): return 1' > solution.py;"
            " (setsid sh -c 'while :; do echo forged > verdict; done' &) ; nohup sleep 600 &"
        ),
    ),
    "links the solution to elsewhere": (terminal("ln -s /etc/ld.so.cache solution.py"),),
    "makes the solution a pipe": (terminal("mkfifo solution.py"),),
    "makes the solution too large": (terminal("head -c 4000000 /dev/zero > solution.py"),),
    "kills what runs it": (terminal("kill -9 1; kill -9 -1"), terminal("echo 'def f(): pass' > solution.py")),
}


@isolated
@pytest.mark.parametrize("how", CHEATS)
async def test_a_policy_that_cheats_gains_nothing(how: str, says: Callable[..., Policy]) -> None:
    played = await play(HIDDEN, says(*CHEATS[how]), here(), SETTINGS)
    assert played.reward.correctness == 0.0
    assert played.reward.total <= 0.3
    assert played.rollout.messages[-1].content == "Done."
    assert SECRET not in "".join(heard(played))
