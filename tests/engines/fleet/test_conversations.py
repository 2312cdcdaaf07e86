"""Which prompts go on from which."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from afterwit.engines.fleet.member import LOOSE, Conversation, Conversations

PROMPT = tuple(range(100, 150))
ids = st.lists(st.integers(0, 2), max_size=60)


def test_the_next_turn_a_retry_and_a_branch_go_on_with_their_conversation() -> None:
    known = Conversations()
    first = known.of(PROMPT)
    assert known.of((*PROMPT, 1, 2, 3)) is first
    assert known.of(PROMPT) is first
    assert known.of((*PROMPT, 7, 8)) is first


def test_the_end_of_a_prompt_may_be_written_otherwise_later() -> None:
    known = Conversations()
    first = known.of(PROMPT)
    assert known.of((*PROMPT[:-LOOSE], 1, 2, 3)) is first
    other = Conversations()
    first = other.of(PROMPT)
    assert other.of((*PROMPT[: -LOOSE - 1], 1, 2, 3)) is not first


def test_a_beginning_that_is_shared_with_no_whole_prompt_makes_no_conversation() -> None:
    known = Conversations()
    first, second = known.of((*PROMPT, *range(20))), known.of((*PROMPT, *range(20, 40)))
    assert first is not second


def test_the_prompt_that_was_used_longest_ago_is_forgotten_first() -> None:
    known = Conversations(most=2)
    one, two = known.of(PROMPT), known.of(range(200, 250))
    assert known.of(PROMPT) is one
    known.of(range(300, 350))
    assert known.of(PROMPT) is one
    assert known.of(range(200, 250)) is not two


def test_a_conversation_never_hears_an_older_version() -> None:
    conversation = Conversation()
    for version in (3, 5, 4):
        conversation.heard(version)
    assert conversation.version == 5


@given(st.lists(ids, max_size=30), st.integers(1, 6))
def test_the_longest_earlier_prompt_is_found_as_by_comparing_with_all(
    prompts: list[list[int]], most: int
) -> None:
    """Against a list of prompts in the order of their use."""
    known, plain = Conversations(most), list[tuple[tuple[int, ...], Conversation]]()
    for prompt in map(tuple, prompts):
        begins = [each for each in plain if prompt[: len(each[0])] == each[0]]
        longest = max(begins, key=lambda each: len(each[0]), default=None)
        found = known.of(prompt)
        if longest is not None:
            assert found is longest[1]
            plain.remove(longest)
            plain.append(longest)
        else:
            assert all(found is not conversation for _, conversation in plain)
        if len(prompt) > LOOSE:
            key = prompt[:-LOOSE]
            plain = [each for each in plain if each[0] != key] + [(key, found)]
            plain = plain[-most:]
