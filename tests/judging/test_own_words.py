"""The lesson of a turn where no judge votes."""

from __future__ import annotations

import pytest

from afterwit.judging.polarity import UNREAD, Reading
from afterwit.judging.questions import case_of
from afterwit.judging.unvoted import MOST_CHARS, failed_call, is_asked_again, own_words, unvoted
from afterwit.turn import Conversation, Message
from afterwit.verdict import Feedback, NextState, Source, Verdict
from tests.binding.test_client_text import OPENCLAW
from tests.fakes.turns import a_turn

COMPLAINT, FINE, THANKED = (Reading(value=value, hint=value < 0, words="read") for value in (-1, 0, 1))
DOUBTFUL = Reading(value=0, hint=True, words="read")
WORDS = "Too long. Keep it short."


def user(text: str) -> Message:
    return Message(role="user", content=text)


def tool(text: str) -> Message:
    return Message(role="tool", content=text, tool_call_id="c1")


def verdict(
    *said: Message, reading: Reading, feedback: Feedback | None = None, schema_error: str | None = None
) -> Verdict:
    following = NextState(messages=said, feedback=feedback)
    return unvoted(case_of(a_turn("t"), following, schema_error=schema_error), following, reading)


@pytest.mark.parametrize(
    ("reading", "reward", "hints"),
    [
        (COMPLAINT, -1, (WORDS,)),
        (DOUBTFUL, 0, (WORDS,)),
        (FINE, 0, ()),
        (THANKED, 1, ()),
        (UNREAD, 0, ()),
    ],
)
def test_a_reply_is_the_hint_unless_it_is_read_as_no_complaint(reading, reward, hints):
    found = verdict(user(WORDS), reading=reading)
    assert (found.reward, found.source, found.hints) == (reward, Source.READ, hints)
    assert found.own_words is bool(hints)
    assert not found.unread


@pytest.mark.parametrize("reading", [COMPLAINT, DOUBTFUL, FINE, THANKED, UNREAD])
@pytest.mark.parametrize("thumb", [-1, 0, 1])
def test_a_thumb_decides_and_words_teach_next_to_a_bad_one_alone(reading, thumb):
    found = verdict(user(WORDS), reading=reading, feedback=Feedback(reward=thumb))
    assert (found.reward, found.source) == (thumb, Source.FEEDBACK)
    assert found.hints == ((WORDS,) if thumb == -1 else ())


@pytest.mark.parametrize("reading", [COMPLAINT, DOUBTFUL])
def test_no_one_is_blamed_for_what_only_the_person_knew(reading):
    found = verdict(user("No, the brush is Oscar's."), reading=reading)
    assert (found.reward, found.hints) == (0, ())
    assert found.votes[-1].rejected == "only the person could know this"
    found = verdict(user("No, the brush is Oscar's. Keep it short."), reading=COMPLAINT)
    assert (found.reward, found.hints) == (-1, ("Keep it short.",))


def test_a_thumb_down_counts_without_its_words():
    found = verdict(user("No, the brush is Oscar's."), reading=UNREAD, feedback=Feedback(reward=-1))
    assert (found.reward, found.source, found.hints) == (-1, Source.FEEDBACK, ())


def test_feedback_in_words_is_the_persons_word_too():
    found = verdict(reading=COMPLAINT, feedback=Feedback(text="Call me Ana."))
    assert (found.reward, found.hints) == (-1, ("Call me Ana.",))


def test_a_call_that_failed_is_bad_unless_the_person_says_otherwise():
    failed = tool('{"error": "no such file"}')
    assert verdict(failed, reading=UNREAD).reward == -1
    assert verdict(failed, reading=UNREAD).source is Source.TOOL
    assert verdict(failed, reading=UNREAD).hints == ()
    assert verdict(failed, user("Thanks!"), reading=THANKED).reward == 1
    assert verdict(failed, reading=UNREAD, schema_error="no such argument").source is Source.SCHEMA
    assert verdict(tool("2 failed"), reading=UNREAD).reward == 0


@pytest.mark.parametrize(
    "result",
    [
        '{"isError": true, "content": []}',
        '{"is_error": true}',
        '{"ok": false}',
        '{"success": false, "data": null}',
        '{"status": "error"}',
        '{"error": {"code": 3}}',
        "Error: no such file",
    ],
)
def test_results_that_are_marked_as_errors(result):
    assert failed_call([tool(result)])
    assert not failed_call([tool(result), tool("done")])


@pytest.mark.parametrize(
    "result",
    [
        "",
        "error",
        "3 errors found",
        '{"error": null}',
        '{"error": ""}',
        '{"ok": true}',
        '[{"error": 1}]',
        '{"err',
    ],
)
def test_results_that_are_not(result):
    assert not failed_call([tool(result)])
    assert not failed_call([user(result)])


def test_what_a_client_adds_and_what_says_nothing_are_nobodys_words():
    assert own_words(NextState(messages=(user(OPENCLAW), tool("Too long.")))) == ""
    assert own_words(NextState(messages=(user("42."), user("👍")))) == ""
    following = NextState(messages=(user(" No. "),), feedback=Feedback(reward=-1, text="短く"))
    assert own_words(following) == "No.\n短く"


def test_a_document_is_no_hint():
    long = "a b " * MOST_CHARS
    found = verdict(user(long), reading=COMPLAINT)
    assert (found.reward, found.hints) == (-1, ())
    assert found.votes[0].rejected == f"over {MOST_CHARS} characters"


@pytest.mark.parametrize(
    ("first", "now", "again"),
    [
        ("Sum up notes/a.txt in one line.", "Sum up notes/b.txt in one line.", True),
        ("Sum up notes/a.txt in one line.", "That is too long. Use one line.", False),
        ("请把第一章总结成一句话。", "请把第二章总结成一句话。", True),
        ("请把第一章总结成一句话。", "太长了，短一点。", False),
        ("第一章を一文で要約してください。", "第二章を一文で要約してください。", True),
        ("第一章を一文で要約してください。", "長すぎます。もっと短く。", False),
        ("Sum up notes/a.txt in one line.", "No! Sum up notes/a.txt in one line.", False),
    ],
)
def test_a_request_in_the_form_of_the_first_one_is_no_complaint(first: str, now: str, again: bool) -> None:
    assert is_asked_again(now, Conversation(messages=(user(first),))) is again
