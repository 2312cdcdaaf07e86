"""What the stage finds doubtful about a verdict is stored with it."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.lifecycle import Reason, State
from afterwit.message import Conversation, Message, ToolCall
from afterwit.verdict import Feedback, Flag
from tests.fakes.judge import asks_for_hint
from tests.judging.stage.house import House

DELETE = Message(role="assistant", tool_calls=(ToolCall(id="1", name="read", arguments='{"path": "a.txt"}'),))
GONE = (Message(role="tool", content="gone", tool_call_id="1"),)


ASKED = Message(role="user", content="Read a.txt.")
LOOKED = Message(role="assistant", tool_calls=(ToolCall(id="0", name="list", arguments="{}"),))
SHOWN = Message(role="tool", content="a.txt", tool_call_id="0")


async def rated(
    house: House, turn: str, scope: str, reward: int, *, before: Sequence[Message] = (ASKED,)
) -> tuple[Flag, ...]:
    conversation = Conversation(messages=tuple(before))
    await house.answered(turn, GONE, scope=scope, session=turn, message=DELETE, conversation=conversation)
    await house.feedback(turn, Feedback(reward=reward))
    await house.judge.step()
    record = await house.record(turn)
    assert record.state is State.JUDGED
    return record.flags


async def test_a_source_that_contradicts_several_others_is_held_for_review_and_then_its_praise_too(store):
    house = House(store)
    assert await rated(house, "a1", "ann", 1) == ()
    assert await rated(house, "e0", "eve", -1) == ()
    assert await rated(house, "b1", "bob", 1) == ()
    assert await rated(house, "a2", "ann", 1) == ()
    assert await rated(house, "b2", "bob", 1) == ()
    assert Flag.CONTRADICTS in await rated(house, "e1", "eve", -1)
    assert Flag.CONTRADICTS not in await rated(house, "e2", "eve", 1)
    assert Flag.CONTRADICTS in await rated(house, "e3", "eve", -1)
    assert Flag.CONTRADICTS in await rated(house, "e4", "eve", 1)
    assert await rated(house, "a3", "ann", 1) == ()


async def test_names_that_one_key_invents_hold_back_nobody(store):
    house = House(store)
    for client in ("one", "two", "three"):
        for number in range(2):
            assert await rated(house, f"{client}{number}", f"eve/{client}", 1) == ()
    assert await rated(house, "a1", "ann/agent", -1) == ()


async def test_calls_that_fail_again_and_again_wait_and_make_their_source_no_liar(store):
    house = House(store)
    for turn, scope in (("a1", "ann"), ("b1", "bob"), ("a2", "ann"), ("b2", "bob")):
        assert await rated(house, turn, scope, 1) == ()
    house.client.answer = lambda messages: r"\boxed{-1}"
    for turn in ("e1", "e2", "e3"):
        await house.answered(turn, GONE, scope="eve", session=turn, message=DELETE)
        await house.judge.step()
    assert [(await house.record(turn)).flags for turn in ("e1", "e2", "e3")] == [
        (),
        (),
        (Flag.TOOLS_CONTRADICT,),
    ]
    assert await rated(house, "e4", "eve", 1) == ()
    assert await rated(house, "e5", "eve", -1) == (Flag.CONTRADICTS,)


async def test_who_wants_a_check_first_is_not_held_against_those_who_praised_the_call_after_it(store):
    house = House(store)
    for turn, scope in (("a1", "ann"), ("b1", "bob"), ("a2", "ann"), ("b2", "bob")):
        assert await rated(house, turn, scope, 1, before=(ASKED, LOOKED, SHOWN)) == ()
    assert await rated(house, "a3", "ann", -1) == ()
    assert await rated(house, "b3", "bob", -1) == ()
    assert await rated(house, "c1", "cleo", -1) == (), "two others spoke of the call without a check"
    assert await rated(house, "e1", "eve", 1) == (Flag.CONTRADICTS,)
    assert await rated(house, "e2", "eve", -1, before=(ASKED, LOOKED, SHOWN)) == (Flag.CONTRADICTS,)


async def test_where_few_spoke_of_a_call_after_another_all_such_calls_count(store):
    house = House(store)
    assert await rated(house, "a1", "ann", 1, before=(ASKED, LOOKED, SHOWN)) == ()
    assert await rated(house, "b1", "bob", 1) == ()
    assert await rated(house, "e1", "eve", -1) == (Flag.CONTRADICTS,)


async def test_a_response_that_holds_a_secret_is_not_judged_and_never_trains(house):
    await house.answered("t1", message=Message(role="assistant", content="Write to bob@mail.org."))
    await house.judge.step()
    record = await house.record("t1")
    assert (record.state, record.reason) == (State.SKIPPED, Reason.HOLDS_SECRET)
    assert house.client.asked == []


async def test_a_response_that_holds_a_secret_ends_its_persons_request(store):
    house, ended = House(store), []
    house.judge = house.stage("judge-2", after=lambda store, turn, *, now: ended.append(turn))
    await house.answered("t1", message=Message(role="assistant", content="Write to bob@mail.org."))
    await house.judge.step()
    assert ended == ["t1"]


async def test_a_hint_that_holds_a_secret_is_no_hint(house):
    hint = r"\boxed{1}[HINT_START]Write to bob@mail.org next time.[HINT_END]"
    house.client.answer = lambda messages: hint if asks_for_hint(messages) else r"\boxed{-1}"
    await house.answered("t1")
    await house.judge.step()
    record = await house.record("t1")
    assert (record.verdict.reward, record.verdict.hints, record.opd) == (-1, (), False)


async def test_hints_of_tools_alone_are_flagged_when_they_are_judged(house):
    await house.answered("t1", GONE, message=DELETE)
    await house.judge.step()
    assert (await house.record("t1")).flags == (Flag.TOOL_WORDS,)
