"""The judge's view and questions, and the verdict from its answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from afterwit.judging.questions import (
    JudgeCall,
    JudgeCase,
    JudgeView,
    call_seed,
    case_of,
    conclude,
    questions,
    reactions,
)
from afterwit.judging.voting import Accept, Answer, VoteRules
from afterwit.turn import Conversation, Message, ToolCall
from afterwit.verdict import Feedback, NextState, Question, Source, Verdict
from tests.binding.test_client_text import OPENCLAW
from tests.fakes.turns import a_turn

RULES = VoteRules(votes=3, accept=Accept.MAJORITY, max_candidates=3, quote_words=8)
GOOD, BAD, UNCLEAR = r"\boxed{1}", r"\boxed{-1}", r"\boxed{0}"
NO_HINT = r"\boxed{-1}"
HINT = r"\boxed{1}[HINT_START]Read the test before you change it.[HINT_END]"


class Prompts:
    """Prompts that say which they are."""

    max_tokens = 64

    def messages(self, question: Question, view: JudgeView) -> tuple[Message, ...]:
        asks = "hint" if question is Question.HINT else "evaluate"
        return (Message(role="user", content=f"{asks} {len(view.next_state)}"),)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def tool(text: str, id: str = "c1") -> Message:
    return Message(role="tool", content=text, tool_call_id=id)


def of(
    next_state: NextState, *, schema_error: str | None = None, messages: tuple[Message, ...] = ()
) -> JudgeCase:
    conversation = Conversation(messages=messages or (user("Fix the test."),))
    return case_of(a_turn("t", conversation=conversation), next_state, schema_error=schema_error)


def concluded(judged: JudgeCase, answers: Iterable[tuple[JudgeCall, str]], rules: VoteRules) -> Verdict:
    """The verdict of answers that all came to their end."""
    return conclude(judged, [(call, Answer(words=words)) for call, words in answers], rules)


def verdict_of(judged: JudgeCase, *words: str):
    calls = questions(judged, Prompts(), RULES)
    return concluded(judged, list(zip(calls, words, strict=True)), RULES)


def test_the_next_state_is_every_tool_result_and_the_reply_with_their_roles():
    messages = (tool("passed", "c1"), tool("2 failed", "c2"), user("No."))
    assert of(NextState(messages=messages)).view.next_state == messages


def test_text_that_clients_add_to_a_persons_words_is_not_a_reaction():
    messages = (
        user(OPENCLAW),
        Message(role="system", content="The budget is 5."),
        user("[Fri 2026-11-20 23:03 UTC] Again, please"),
    )
    assert reactions(messages) == (user("Again, please"),)


def test_a_failure_cannot_hide_from_the_judge_in_marks_of_a_client():
    result = tool("done<system-reminder>Traceback: 3 tests failed</system-reminder>")
    assert reactions((result,)) == (result,)


def test_a_tool_that_returns_nothing_has_still_returned():
    assert reactions((tool(""),)) == (tool(""),)


def test_feedback_in_words_is_the_last_message_of_the_next_state():
    judged = of(NextState(messages=(tool("ok"),), feedback=Feedback(text="Too long.")))
    assert judged.view.next_state == (tool("ok"), user("Too long."))
    assert judged.decided is None


@pytest.mark.parametrize(("reward", "word"), [(1, "good"), (0, "neutral"), (-1, "bad")])
def test_feedback_without_words_is_said_as_such(reward, word):
    judged = of(NextState(feedback=Feedback(reward=reward)))
    assert judged.view.next_state == (user(f"[explicit feedback: {word}]"),)


def test_the_request_is_the_last_thing_a_person_asked_and_the_rest_is_context():
    call = Message(role="assistant", tool_calls=(ToolCall(id="c1", name="ls", arguments="{}"),))
    messages = (user("Hello."), user("Fix it."), call, tool("a.py"), user(OPENCLAW))
    shown = of(NextState(messages=(user("Thanks."),)), messages=messages).view
    assert shown.request == "Fix it."
    assert shown.context == (user("Hello."), call, tool("a.py"), user(OPENCLAW))


def test_a_prompt_without_a_person_has_no_request():
    shown = of(NextState(messages=(user("Hi."),)), messages=(Message(role="system", content="Go."),)).view
    assert (shown.request, len(shown.context)) == ("", 1)


def test_each_question_is_asked_m_times():
    calls = questions(of(NextState(messages=(user("Thanks."),))), Prompts(), RULES)
    assert [(call.question, call.index) for call in calls] == [
        (question, index) for question in (Question.EVALUATION, Question.HINT) for index in range(3)
    ]
    assert {call.messages[0].content for call in calls} == {"evaluate 1", "hint 1"}


@pytest.mark.parametrize(
    ("judged", "reward", "source"),
    [
        (of(NextState(messages=(user("x"),), feedback=Feedback(reward=1))), 1, Source.FEEDBACK),
        (of(NextState(feedback=Feedback(reward=0))), 0, Source.FEEDBACK),
        (of(NextState(messages=(tool("error"),)), schema_error="no such tool"), -1, Source.SCHEMA),
        (of(NextState(feedback=Feedback(reward=1)), schema_error="no such tool"), 1, Source.FEEDBACK),
        (of(NextState(feedback=Feedback(text="Hm.")), schema_error="no such tool"), -1, Source.SCHEMA),
    ],
)
def test_a_decided_reward_takes_no_vote_and_only_the_hint_is_asked_for(judged, reward, source):
    calls = questions(judged, Prompts(), RULES)
    assert [call.question for call in calls] == [Question.HINT] * 3
    verdict = verdict_of(judged, HINT, HINT, NO_HINT)
    assert (verdict.reward, verdict.source) == (reward, source)
    assert verdict.hints == ("Read the test before you change it.",)


def test_a_next_state_that_says_nothing_is_not_judged():
    judged = of(NextState(messages=(user(OPENCLAW),)))
    assert questions(judged, Prompts(), RULES) == ()
    assert verdict_of(judged).reward == 0


def test_votes_are_read_by_their_question():
    verdict = verdict_of(of(NextState(messages=(user("No."),))), BAD, BAD, UNCLEAR, HINT, NO_HINT, HINT)
    assert (verdict.reward, verdict.source) == (-1, Source.VOTES)
    assert verdict.hints == ("Read the test before you change it.",)
    assert [vote.value for vote in verdict.votes] == [-1, -1, 0, 1, -1, 1]
    assert verdict.votes[0].words == BAD


def test_a_hint_is_compared_with_all_that_followed():
    said = "the configuration file must be called settings.toml and live in etc"
    leak = rf"\boxed{{1}}[HINT_START]Know that {said}.[HINT_END]"
    for next_state in (
        NextState(messages=(tool(said), user("No."))),
        NextState(messages=(user("No."),), feedback=Feedback(text=said)),
    ):
        verdict = verdict_of(of(next_state), BAD, BAD, BAD, leak, leak, leak)
        assert verdict.hints == ()
        assert verdict.votes[-1].rejected == "hint quotes the next state"


def test_every_call_has_a_seed_of_its_own_that_stays():
    calls = questions(of(NextState(messages=(user("No."),))), Prompts(), RULES)
    seeds = [call_seed(turn, call) for turn in ("a", "b") for call in calls]
    assert len(set(seeds)) == 12
    assert seeds == [call_seed(turn, call) for turn in ("a", "b") for call in calls]
    assert all(0 <= seed < 2**31 for seed in seeds)


def copied(arguments: str, name: str = "copy") -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(id=arguments, name=name, arguments=arguments),))


@pytest.mark.parametrize(
    ("earlier", "answers", "feedback", "pay", "expected"),
    [
        (copied('{"a": 1}'), GOOD, None, False, (0, Source.REPEAT)),
        (copied('{"a": 1}'), GOOD, None, True, (1, Source.VOTES)),
        (copied('{"a": 1}'), BAD, None, False, (-1, Source.VOTES)),
        (copied('{"a": 1}'), GOOD, Feedback(reward=1), False, (1, Source.FEEDBACK)),
        (copied('{"a": 2}'), GOOD, None, False, (1, Source.VOTES)),
        (copied('{"a": 1}', "move"), GOOD, None, False, (1, Source.VOTES)),
    ],
)
def test_votes_do_not_pay_for_a_call_that_was_made_before(earlier, answers, feedback, pay, expected):
    turn = a_turn("t", conversation=Conversation(messages=(user("Copy."), earlier, tool("ok"))))
    turn = replace(turn, message=copied('{"a": 1}'))
    judged = case_of(turn, NextState(messages=(tool("ok"),), feedback=feedback), schema_error=None)
    rules = replace(RULES, pay_repeats=pay)
    calls = questions(judged, Prompts(), rules)
    said = [answers if call.question is Question.EVALUATION else NO_HINT for call in calls]
    verdict = concluded(judged, zip(calls, said, strict=True), rules)
    assert (verdict.reward, verdict.source) == expected


def test_feedback_is_checked_against_a_judge_that_does_not_see_it() -> None:
    judged = of(NextState(messages=(user("No."),), feedback=Feedback(reward=-1, text="Bad.")))
    rules = replace(RULES, calibrate=True)
    calls = questions(judged, Prompts(), rules)
    assert [call.question for call in calls] == [Question.HINT] * 3 + [Question.BLIND]
    assert calls[-1].messages == Prompts().messages(
        Question.EVALUATION, of(NextState(messages=(user("No."),))).view
    )
    verdict = concluded(judged, [(call, GOOD) for call in calls], rules)
    assert (verdict.reward, verdict.source, verdict.votes[-1].value) == (-1, Source.FEEDBACK, 1)


@pytest.mark.parametrize(
    "next_state",
    [
        NextState(messages=(user("No."),)),
        NextState(feedback=Feedback(reward=-1)),
        NextState(messages=(user("No."),), feedback=Feedback(text="Hm.")),
    ],
)
def test_there_is_nothing_to_check_without_a_reward_or_something_else_that_followed(next_state) -> None:
    calls = questions(of(next_state), Prompts(), replace(RULES, calibrate=True))
    assert Question.BLIND not in {call.question for call in calls}


def test_an_unread_check_is_no_unread_verdict() -> None:
    judged = of(NextState(messages=(user("No."),), feedback=Feedback(reward=-1)))
    rules = replace(RULES, calibrate=True)
    calls = questions(judged, Prompts(), rules)
    answers = [(call, "?" if call.question is Question.BLIND else NO_HINT) for call in calls]
    assert not concluded(judged, answers, rules).unread
