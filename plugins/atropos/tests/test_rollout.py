"""A recorded rollout in, samples out: transcripts of real agents with made-up ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.judging.prompts import FullPrompts
from afterwit.judging.questions import JudgeCall, conclude, questions
from afterwit.judging.verdicts import case
from afterwit.judging.voting import Accept, Answer, VoteRules
from afterwit.lifecycle import Reason
from afterwit.turn import Conversation, Kind, Message, Turn
from afterwit.verdict import Feedback, NextState, Question, Source, Verdict, untrainable
from afterwit_atropos.rollout import Rollout, pairs
from tests.fakes.turns import a_turn

ROLLOUTS = Path(__file__).parent / "rollouts"
RULES = VoteRules(votes=3, accept=Accept.MAJORITY, max_candidates=3, quote_words=8)
PROMPTS = FullPrompts(
    max_tokens=512, context_chars=4000, tools_chars=1000, response_chars=2000, next_state_chars=2000
)
HINT = r"\boxed{1}[HINT_START]Call a tool in every response until the task is done.[HINT_END]"


def transcript(name: str) -> tuple[Message, ...]:
    data = json.loads((ROLLOUTS / f"{name}.json").read_text())
    return tuple(Message.from_dict(message) for message in data)


def tools_of(messages: tuple[Message, ...]) -> tuple[dict[str, object], ...]:
    names = {call.name: None for message in messages for call in message.tool_calls}
    return tuple({"type": "function", "function": {"name": name}} for name in names)


def rollout(messages: tuple[Message, ...], *, outcome: Feedback | None = None) -> Rollout:
    """Every assistant message is a turn."""

    def turn(at: int) -> Turn:
        prompt = Conversation(messages=messages[:at], tools=tools_of(messages))
        return a_turn(f"turn{at}", conversation=prompt, message=messages[at])

    places = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return Rollout(messages=messages, turns={at: turn(at) for at in places}, outcome=outcome)


def reads(turn: Turn, call: JudgeCall) -> Answer:
    """A judge by one word of the prompt, so that what it was shown decides."""
    shown = call.messages[-1].content or ""
    after = shown[shown.index("NEXT STATE") :]
    wrong = "error>" in after
    if call.question is Question.EVALUATION:
        return Answer(words=r"<think>\boxed{0}?</think>" + (r"\boxed{-1}" if wrong else r"\boxed{1}"))
    return Answer(words=HINT if wrong else r"\boxed{-1}")


def learned(given: Rollout, ask: Callable[[Turn, JudgeCall], Answer] = reads) -> list[Verdict | Reason]:
    """Of each turn its verdict if it trains, else the reason."""

    def judged(turn: Turn, next_state: NextState | None) -> Verdict | Reason:
        if (reason := untrainable(turn)) is not None:
            return reason
        if next_state is None:
            return Reason.NO_NEXT_STATE
        shown = case(turn, next_state)
        answers = [(call, ask(turn, call)) for call in questions(shown, PROMPTS, RULES)]
        verdict = conclude(shown, answers, RULES)
        return RULES.reads.of(turn, verdict).reason or verdict

    return [judged(turn, next_state) for turn, next_state in pairs(given)]


@pytest.mark.parametrize("name", ["hermes", "openclaw", "mini-swe-agent"])
def test_every_message_between_two_responses_is_the_next_state_of_the_first(name):
    given = rollout(transcript(name))
    found = pairs(given)
    assert [turn.id for turn, _ in found] == [f"turn{at}" for at in sorted(given.turns)]
    followed = [message for _, state in found if state for message in state.messages]
    first = min(given.turns)
    assert followed == [message for message in given.messages[first:] if message.role != "assistant"]


def test_a_conversation_of_hermes_teaches_by_its_replies_alone_but_not_by_a_call_made_twice():
    done = learned(rollout(transcript("hermes")))
    taught = [(one.reward, one.hints) for one in done if isinstance(one, Verdict)]
    assert taught == [(1, ())] * (len(done) - 1)
    assert [one for one in done if not isinstance(one, Verdict)] == [Reason.NO_SIGNAL]


def test_the_complaint_that_mini_swe_agent_inserts_is_a_negative_next_state_with_a_hint():
    done = learned(rollout(transcript("mini-swe-agent")))
    complained = [one for one in done if isinstance(one, Verdict) and one.reward == -1]
    assert {one.hints for one in complained} == {("Call a tool in every response until the task is done.",)}


def test_what_openclaw_adds_is_never_shown_as_a_reaction():
    shown: list[str] = []

    def look(turn: Turn, call: JudgeCall) -> Answer:
        text = call.messages[-1].content or ""
        shown.append(text[text.index("NEXT STATE") :])
        return Answer(words=r"\boxed{1}")

    learned(rollout(transcript("openclaw")), look)
    assert shown
    assert not any("OPENCLAW" in text or "2026-11-20" in text for text in shown)


@pytest.mark.parametrize("name", ["hermes", "openclaw", "mini-swe-agent"])
def test_the_same_answers_give_the_same_samples(name):
    assert learned(rollout(transcript(name))) == learned(rollout(transcript(name)))


def test_the_tasks_own_verdict_belongs_to_the_last_turn_and_decides_it():
    messages = transcript("hermes")
    last = max(rollout(messages).turns)
    done = learned(rollout(messages[: last + 1], outcome=Feedback(reward=-1, text="2 tests failed")))[-1]
    assert isinstance(done, Verdict)
    assert (done.reward, done.source) == (-1, Source.FEEDBACK)
    assert {vote.question for vote in done.votes} == {Question.HINT}


def test_a_turn_that_nothing_followed_ends_without_a_call():
    messages = transcript("hermes")
    last = max(rollout(messages).turns)
    assert learned(rollout(messages[: last + 1]))[-1] is Reason.NO_NEXT_STATE


def test_side_turns_are_not_put_before_the_judge():
    messages = transcript("hermes")
    at = min(rollout(messages).turns)
    side = a_turn("side", kind=Kind.SIDE, message=messages[at])
    given = Rollout(messages=messages, turns={at: side})
    assert learned(given) == [Reason.SIDE_TURN]


@pytest.mark.parametrize(
    ("said", "reward", "source"),
    [(None, 1, Source.VOTES), ("Error: there is no such tool", -1, Source.SCHEMA)],
)
def test_a_call_of_a_tool_that_the_request_did_not_offer_is_bad_only_if_no_tool_took_it(said, reward, source):
    messages = transcript("hermes")
    at = min(rollout(messages).turns)
    if said is not None:
        messages = (*messages[: at + 1], replace(messages[at + 1], content=said), *messages[at + 2 :])
    turn = a_turn("t", conversation=Conversation(messages=messages[:at]), message=messages[at])
    (done,) = learned(Rollout(messages=messages, turns={at: turn}))
    assert isinstance(done, Verdict)
    assert (done.reward, done.source) == (reward, source)


@pytest.mark.parametrize(
    ("at", "message"), [(9, "at index 9, but there are 1"), (0, "is a message of the user")]
)
def test_a_turns_index_must_be_that_of_a_response(at, message):
    with pytest.raises(ValueError, match=message):
        Rollout(messages=(Message(role="user", content="Hi."),), turns={at: a_turn("t")})


def test_a_turn_said_what_stands_at_its_index():
    with pytest.raises(ValueError, match="differs from the message"):
        Rollout(messages=(Message(role="assistant", content="Hi."),), turns={0: a_turn("t")})
