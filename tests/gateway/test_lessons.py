"""Lessons in prompts: part of the ids, fixed for a session, and no part of the text that a client sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from afterwit.build import shown_lessons
from afterwit.chat_format.render import Renderer
from afterwit.config import Settings
from afterwit.gateway.prepare import listed
from afterwit.judging.hinted_prompts import LESSONS
from afterwit.learning.settings import LearnerSettings
from afterwit.practice.lessons import PracticeSettings
from afterwit.store import Store
from afterwit.turn import Conversation, Kind, Message, source_of
from tests.gateway.serving import USER, Serving

SHORT = f"{LESSONS}\n- Keep it short."
SYSTEM = {"role": "system", "content": "You are kind."}


@pytest.fixture
def shown(gateway: Serving) -> list[str]:
    """The lessons that a new conversation's prompt shows: the last text counts."""
    found = [SHORT]

    def lessons(store: Store, *, adapter: str, scope: str, now: float) -> str:
        assert (adapter, source_of(scope)) == ("shared", "local")
        return found[-1]

    gateway.app.gateway.lessons = lessons
    return found


def replied(*messages: dict[str, str], words: str = "No, again.") -> list[dict[str, str]]:
    return [*messages, {"role": "assistant", "content": "Hello there."}, {"role": "user", "content": words}]


async def prompts(gateway: Serving, renderer: Renderer) -> list[str]:
    """Of all turns, checked against the engine's and against what their conversations render to."""
    turns: Sequence[Any] = [record.turn for record in await gateway.records()]
    assert [turn.prompt_ids for turn in turns] == [asked.prompt_ids for asked in gateway.engine.asked]
    assert [renderer.prompt_ids(turn.conversation) for turn in turns] == [turn.prompt_ids for turn in turns]
    return [renderer.decode(turn.prompt_ids) for turn in turns]


@pytest.mark.parametrize("opening", [USER, [SYSTEM, *USER]], ids=["no instructions", "instructions"])
async def test_a_sessions_list_is_fixed_and_its_turns_are_bound_by_the_clients_text(
    gateway: Serving, shown: list[str], renderer: Renderer, opening: list[dict[str, str]]
):
    await gateway.ask(opening)
    shown.append(f"{SHORT}\n- Greet me.")
    await gateway.ask(replied(*opening))
    first, second = await gateway.records()
    assert (second.turn.parent, second.turn.session) == (first.turn.id, first.turn.session)
    assert [message.content for message in first.next_state.messages] == ["No, again."]
    one, two = await prompts(gateway, renderer)
    assert SHORT in one
    assert "Greet me." not in two
    assert second.turn.prompt_ids[: len(first.turn.prompt_ids)] == first.turn.prompt_ids  # stays cached
    assert [message.content for message in second.turn.conversation.messages] == [
        message["content"] for message in replied(*opening)
    ]
    await gateway.ask([{"role": "user", "content": "Something new."}])
    assert "Greet me." in (await prompts(gateway, renderer))[-1]


@pytest.mark.parametrize(
    ("roles", "at"), [("system user assistant user", 1), ("user", 0), ("assistant user", 1), ("system", 0)]
)
def test_the_first_user_message_begins_with_them(roles: str, at: int) -> None:
    said = tuple(Message(role=role, content=f"{role} speaks.") for role in roles.split())
    begun = replace(said[at], content=f"{SHORT}\n\n{said[at].content}")
    shown = Conversation(messages=said, lessons=SHORT)
    assert shown.rendered == (*said[:at], begun, *said[at + 1 :])
    assert replace(shown, lessons="").rendered == said


async def test_a_session_that_began_without_lessons_goes_on_without(
    gateway: Serving, shown: list[str], renderer: Renderer
):
    shown.append("")
    await gateway.ask()
    shown.append(SHORT)
    await gateway.ask(replied(*USER))
    assert all(SHORT not in prompt for prompt in await prompts(gateway, renderer))


async def test_side_turns_and_keys_that_may_not_teach_read_no_lessons(
    gateway: Serving, shown: list[str], renderer: Renderer
):
    side = {"model": "tiny", "messages": USER}
    await gateway.http.post("/chat/completions", json=side, headers={"x-turn-type": "side"})
    (record,) = await gateway.records()
    assert record.turn.kind is Kind.SIDE
    key = await gateway.add_key("guest", "chat")
    await gateway.http.post("/chat/completions", json=side, headers={"authorization": f"Bearer {key}"})
    assert all(SHORT not in prompt for prompt in await prompts(gateway, renderer))


async def test_lessons_that_do_not_fit_the_context_are_left_out(
    gateway: Serving, shown: list[str], renderer: Renderer
):
    shown.append("word " * 5000)
    assert (await gateway.ask()).status_code == 200
    assert "word word" not in (await prompts(gateway, renderer))[0]


async def test_a_response_that_goes_on_from_a_stored_one_inherits_the_list_once(
    gateway: Serving, shown: list[str], renderer: Renderer
):
    first = await gateway.http.post("/responses", json={"model": "tiny", "input": "Open it."})
    body = {"model": "tiny", "input": "No, again.", "previous_response_id": first.json()["id"]}
    await gateway.http.post("/responses", json=body)
    _, second = await prompts(gateway, renderer)
    assert second.count(SHORT) == 1


def test_a_list_has_so_many_lessons_and_tokens_at_most(renderer: Renderer) -> None:
    words = ["Keep  it\nshort.", "Greet me.", "Use lists."]
    assert listed(words, renderer, most=2, tokens=99) == f"{SHORT}\n- Greet me."
    room = len(renderer.encode(SHORT))
    assert listed(words, renderer, most=9, tokens=room) == SHORT
    assert listed(words, renderer, most=9, tokens=room - 1) == ""
    assert listed([], renderer, most=9, tokens=99) == ""


@pytest.mark.parametrize("changes", [{"at_once": False}, {"enabled": False}])
def test_no_prompt_shows_a_lesson_unless_a_person_turned_that_on(
    renderer: Renderer, changes: dict[str, bool]
) -> None:
    assert not PracticeSettings().at_once
    practice = PracticeSettings(**{"at_once": True} | changes)
    assert shown_lessons(Settings(practice=practice), renderer) is None
    off = Settings(practice=PracticeSettings(at_once=True), learner=LearnerSettings(enabled=False))
    assert shown_lessons(off, renderer) is None
