"""The taste of the chat world's person depends on the answer's text alone."""

from itertools import chain, combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterwit.demo.chat import world as chat
from afterwit.demo.chat.world import ChatWorld
from afterwit.demo.world import Task
from afterwit.turn import ToolCall
from experiments.cases import chat as expert
from tests.timing import check_linear

WORLD = ChatWorld()
SINGLE = ("where", "who", "when", "howto")


def _answer(task: Task, index: int, keep: set[str], rng: Random) -> str:
    kind = task.kind.split("_")[index]
    return expert.expert_answer(kind, task.subject[kind], task.checks[index], keep, rng)


@pytest.mark.parametrize("kind", SINGLE)
def test_an_answer_in_any_style_breaks_just_the_other_rules_and_tells_every_fact(kind: str) -> None:
    rng, applying = Random(0), chat.rules_of(kind)
    styles = chain.from_iterable(combinations(applying, number) for number in range(len(applying) + 1))
    for keep in styles:
        for _ in range(20):
            task = chat.of_kind(kind, "fresh", rng)
            text = _answer(task, 0, set(keep), rng)
            assert set(chat.broken(text, applying)) == set(applying) - set(keep), text
            assert chat.missing(text, task.checks[0]) is None


@given(st.text())
def test_no_text_at_all_raises_and_what_is_broken_is_named_in_the_rules_own_order(text: str) -> None:
    found = chat.broken(text, chat.RULES)
    assert found == tuple(rule for rule in chat.RULES if rule in found)


@given(st.lists(st.sampled_from(["lamp", "on", "is", "now"]), min_size=1, max_size=40))
def test_short_counts_words_and_nothing_else_does(words: list[str]) -> None:
    broken = chat.broken(" ".join(words), ("short", "plain"))
    assert broken == (("short",) if len(words) > chat.MOST_WORDS else ())


@pytest.mark.parametrize("text", ["", " \n", "1. 2. 3.", "?!"])
def test_an_answer_without_a_word_keeps_no_rule(text: str) -> None:
    assert chat.broken(text, chat.RULES) == chat.RULES


@pytest.mark.parametrize("text", ["Hi! It is there.", "hey, look in the box", "Sure! Ada Lamp."])
def test_a_greeting_is_friendly_in_any_case(text: str) -> None:
    assert chat.broken(text, ("friendly",)) == ()


@pytest.mark.parametrize("text", ["this is white", "to be sure of it", "they have it"])
def test_a_greeting_inside_another_word_is_none(text: str) -> None:
    assert chat.broken(text, ("friendly",)) == ("friendly",)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("1. fill it\n2. shut it", True),
        ("do this:\n 1) fill it\n 2) shut it\nbye", True),
        ("1. fill it", False),
        ("1. fill it\n3. shut it", False),
        ("2. fill it\n1. shut it", False),
        ("1. fill it 2. shut it", False),
    ],
)
def test_steps_are_lines_numbered_from_one(text: str, kept: bool) -> None:
    assert chat.broken(text, ("steps",)) == (() if kept else ("steps",))


def test_a_step_of_thousands_of_digits_is_no_step() -> None:
    digits = "1" * 5_000
    assert chat.broken(f"sure!\n1. go\n{digits}. stop", ("steps",)) == ("steps",)


def test_the_empty_lines_of_an_answer_are_read_in_linear_time() -> None:
    check_linear(lambda text: chat.broken(text, chat.RULES), lambda size: "\n" * size, 2_000)
    check_linear(lambda text: WORLD.judge.could_break("steps", text), lambda size: "\n" * size, 2_000)


def test_a_fact_counts_as_whole_words_in_its_place() -> None:
    assert chat.missing("It is on Monday\nat nine.", ("on monday", "at nine")) is None
    assert chat.missing("at nine on monday", ("on monday", "at nine")) == "at nine"
    assert chat.missing("the lampshade", ("lamp",)) == "lamp"


@pytest.mark.parametrize("kind", sorted(set(chat.KINDS)))
def test_a_whole_conversation_the_persons_way_is_kept_and_passes(kind: str) -> None:
    rng = Random(3)
    task = chat.of_kind(kind, "fresh", rng)
    with WORLD.start(task) as state:
        asked = [state.hear(_answer(task, n, set(chat.RULES), rng)) for n in range(len(task.checks))]
        assert (state.kept(), state.broken(), state.check()) == (True, (), None)
    assert asked == [*task.follow_ups, None]


def test_one_answer_in_the_default_style_spoils_a_conversation_and_not_its_success() -> None:
    rng = Random(4)
    task = chat.of_kind("where_who", "fresh", rng)
    with WORLD.start(task) as state:
        state.hear(_answer(task, 0, set(chat.RULES), rng))
        state.hear(_answer(task, 1, set(), rng))
        assert (state.kept(), state.broken()) == (False, ("short", "plain", "friendly"))
        assert state.check() is None


def test_who_does_not_answer_is_asked_nothing_further_and_keeps_nothing() -> None:
    task = chat.of_kind("howto_when", "fresh", Random(5))
    with WORLD.start(task) as state:
        assert (state.kept(), state.check()) == (False, task.checks[0][0])
        assert state.hear("Hi! I do not know.") is None
        assert (state.kept(), state.check()) == (False, task.checks[0][0])


def test_steps_are_asked_of_how_to_answers_alone() -> None:
    rng = Random(6)
    task = chat.of_kind("howto_when", "fresh", rng)
    with WORLD.start(task) as state:
        state.hear(_answer(task, 0, set(), rng))
        assert state.broken() == chat.RULES
    task = chat.of_kind("when", "fresh", rng)
    with WORLD.start(task) as state:
        state.hear(_answer(task, 0, set(), rng))
        assert state.broken() == chat.RULES[:3]


def test_a_call_finds_no_tool() -> None:
    with WORLD.start(chat.of_kind("who", "fresh", Random(0))) as state:
        assert state.act(ToolCall(id="1", name="read", arguments="{}")) == "error: no tool read"
